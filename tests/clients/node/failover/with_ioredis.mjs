// ioredis and iovalkey, its fork for Valkey: WEIR_CLIENT names the package. Both speak RESP2 in this version.
import { main } from "./life.mjs";

const { Cluster } = await import(process.env.WEIR_CLIENT ?? "ioredis");
const object = (flat) => Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, i) => flat.slice(2 * i, 2 * i + 2)));
const rows = (reply) => (reply ?? []).map(([id, flat]) => [id, object(flat)]);
const only = (reply) => (reply ? rows(reply[0][1]) : []);

await main(async (port) => {
  const r = new Cluster([{ host: "127.0.0.1", port }]);
  const blocking = new Cluster([{ host: "127.0.0.1", port }]);
  for (const client of [r, blocking]) client.on("error", () => {});
  return {
    add: (key, fields) => r.xadd(key, "*", ...Object.entries(fields).flat()),
    range: async (key) => rows(await r.xrange(key, "-", "+")),
    createGroup: (key, group) => r.xgroup("CREATE", key, group, "0"),
    readGroup: async (key, group, consumer, count) =>
      only(await r.xreadgroup("GROUP", group, consumer, "COUNT", count, "STREAMS", key, ">")),
    blockingRead: async (key, ms) => only(await blocking.xread("BLOCK", ms, "STREAMS", key, "$")),
    ack: (key, group, ids) => r.xack(key, group, ...ids),
    pending: async (key, group) => (await r.xpending(key, group))[0],
    claim: async (key, group, consumer, count) =>
      rows((await r.xautoclaim(key, group, consumer, 0, "0-0", "COUNT", count))[1]),
    close: async () => {
      await Promise.all([r.quit(), blocking.quit()]);
    },
  };
});
