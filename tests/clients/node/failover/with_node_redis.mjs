// node-redis (the npm package `redis`), createCluster.
import { createCluster } from "redis";
import { main } from "./life.mjs";

const rows = (reply) => (reply ?? []).map(({ id, message }) => [id, message]);
const only = (reply) => (reply ? rows((Array.isArray(reply) ? reply[0] : Object.values(reply)[0]).messages ?? Object.values(reply)[0]) : []);

await main(async (port, protocol) => {
  const client = () =>
    createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }], defaults: { RESP: protocol } })
      .on("error", () => {})
      .connect();
  const [r, blocking] = [await client(), await client()];
  return {
    add: (key, fields) => r.xAdd(key, "*", fields),
    range: async (key) => rows(await r.xRange(key, "-", "+")),
    createGroup: (key, group) => r.xGroupCreate(key, group, "0"),
    readGroup: async (key, group, consumer, count) =>
      only(await r.xReadGroup(group, consumer, { key, id: ">" }, { COUNT: count })),
    blockingRead: async (key, ms) => only(await blocking.xRead({ key, id: "$" }, { BLOCK: ms })),
    ack: (key, group, ids) => r.xAck(key, group, ids),
    pending: async (key, group) => (await r.xPending(key, group)).pending,
    claim: async (key, group, consumer, count) =>
      rows((await r.xAutoClaim(key, group, consumer, 0, "0-0", { COUNT: count })).messages),
    close: async () => {
      r.destroy();
      blocking.destroy();
    },
  };
});
