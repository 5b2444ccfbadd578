// valkey-glide for Node, GlideClusterClient.
import { GlideClusterClient, InfBoundary, ProtocolVersion } from "@valkey/valkey-glide";
import { main } from "./life.mjs";

const rows = (reply) => Object.entries(reply ?? {}).map(([id, pairs]) => [id, Object.fromEntries(pairs)]);
// A list of {key, value}: the value maps ids to pairs.
const only = (reply) => (reply?.length ? rows(reply[0].value) : []);

await main(async (port, protocol) => {
  const client = () =>
    GlideClusterClient.createClient({
      addresses: [{ host: "127.0.0.1", port }],
      protocol: protocol === 2 ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3,
      requestTimeout: 5000,
    });
  // One connection a node: a blocking read needs a client of its own.
  const [r, blocking] = [await client(), await client()];
  return {
    add: (key, fields) => r.xadd(key, Object.entries(fields)),
    range: async (key) => rows(await r.xrange(key, InfBoundary.NegativeInfinity, InfBoundary.PositiveInfinity)),
    createGroup: (key, group) => r.xgroupCreate(key, group, "0"),
    readGroup: async (key, group, consumer, count) =>
      only(await r.xreadgroup(group, consumer, { [key]: ">" }, { count })),
    blockingRead: async (key, ms) => only(await blocking.xread({ [key]: "$" }, { block: ms })),
    ack: (key, group, ids) => r.xack(key, group, ids),
    pending: async (key, group) => (await r.xpending(key, group))[0],
    claim: async (key, group, consumer, count) =>
      rows((await r.xautoclaim(key, group, consumer, 0, "0-0", { count }))[1]),
    close: async () => {
      r.close();
      blocking.close();
    },
  };
});
