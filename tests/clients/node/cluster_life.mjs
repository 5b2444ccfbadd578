// The life of a stream application on ioredis' Cluster, unmodified. Usage: cluster_life.mjs PORT
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { Cluster } from "ioredis";
import slotOf from "cluster-key-slot";

const port = Number(process.argv[2]);
const run = randomBytes(4).toString("hex");
const connect = (options = {}) => new Cluster([{ host: "127.0.0.1", port }], options);
const key = (name, tag = name) => `js:${run}:{${tag}}:${name}`;
const entries = (reply) => (reply ? reply[0][1] : []);
const ids = (rows) => rows.map(([id]) => id);

/** One new key per leader that CLUSTER SLOTS names, so that each shard takes part. */
async function keysForEveryPrimary(r) {
  const rows = await r.nodes("master")[0].cluster("SLOTS");
  const found = new Map();
  const label = randomBytes(4).toString("hex");
  const wanted = new Set(rows.map(([, , [host, p]]) => `${host}:${p}`));
  for (let n = 0; found.size < wanted.size; n++) {
    assert.ok(n < 10_000, "a primary that no key reaches");
    const k = key(`${label}${n}`);
    const slot = slotOf(k);
    const [, , [host, p]] = rows.find(([first, last]) => first <= slot && slot <= last);
    if (!found.has(`${host}:${p}`)) found.set(`${host}:${p}`, k);
  }
  return [...found.values()];
}

const tests = {
  async "every leader is found as a master"(r) {
    await r.ping();
    assert.equal(r.nodes("master").length, 3);
  },

  async "what is added is read back"(r) {
    for (const k of await keysForEveryPrimary(r)) {
      const added = [];
      for (let n = 0; n < 20; n++) added.push(await r.xadd(k, "*", "n", n));
      assert.equal(await r.xlen(k), 20);
      assert.deepEqual(await r.xrange(k, "-", "+"), added.map((id, n) => [id, ["n", `${n}`]]));
      assert.deepEqual(ids(await r.xrevrange(k, "+", "-", "COUNT", 3)), added.slice(17).reverse());
      assert.deepEqual(ids(entries(await r.xread("COUNT", 10, "STREAMS", k, added[17]))), added.slice(18));
      assert.equal(await r.xtrim(k, "MAXLEN", 5), 15);
      assert.equal(await r.del(k), 1);
    }
  },

  async "a group delivers, acknowledges and claims"(r) {
    for (const k of await keysForEveryPrimary(r)) {
      assert.equal(await r.xgroup("CREATE", k, "g", "0", "MKSTREAM"), "OK");
      await assert.rejects(r.xgroup("CREATE", k, "g", "0"), /^ReplyError: BUSYGROUP/);
      const added = [];
      for (let n = 0; n < 10; n++) added.push(await r.xadd(k, "*", "n", n));
      const read = (consumer) => r.xreadgroup("GROUP", "g", consumer, "COUNT", 6, "STREAMS", k, ">");
      assert.deepEqual(ids(entries(await read("alice"))), added.slice(0, 6));
      assert.deepEqual(ids(entries(await read("bob"))), added.slice(6));
      assert.equal(await read("bob"), null);
      assert.equal(await r.xack(k, "g", ...added.slice(0, 4)), 4);
      assert.equal((await r.xpending(k, "g"))[0], 6);
      assert.deepEqual(ids(await r.xclaim(k, "g", "carol", 0, added[4])), [added[4]]);
      const [cursor, claimed] = await r.xautoclaim(k, "g", "carol", 0, "0-0");
      assert.equal(cursor, "0-0");
      assert.deepEqual(ids(claimed), added.slice(4));
      assert.equal(await r.xack(k, "g", ...added), 6);
      assert.equal(await r.xgroup("DESTROY", k, "g"), 1);
    }
  },

  async "a blocked reader is woken"(r) {
    for (const k of await keysForEveryPrimary(r)) {
      const own = connect();
      let done = false;
      const reading = own.xread("BLOCK", 10_000, "STREAMS", k, "$").finally(() => (done = true));
      while (!done) {
        await r.xadd(k, "*", "n", "after");
        await Promise.race([reading, new Promise((next) => setTimeout(next, 50))]);
      }
      assert.deepEqual(entries(await reading)[0][1], ["n", "after"]);
      const began = Date.now();
      assert.equal(await own.xread("BLOCK", 200, "STREAMS", k, "$"), null);
      assert.ok(Date.now() - began >= 190);
      own.disconnect();
    }
  },

  async "a pipeline keeps its order"(r) {
    for (const k of await keysForEveryPrimary(r)) {
      const pipe = r.pipeline();
      for (let n = 0; n < 100; n++) pipe.xadd(k, "*", "n", n);
      const replies = (await pipe.exec()).map(([error, id]) => { assert.equal(error, null); return id; });
      const rows = await r.xrange(k, "-", "+");
      assert.deepEqual(ids(rows), replies);
      assert.deepEqual(rows.map(([, [, n]]) => Number(n)), [...Array(100).keys()]);
    }
  },

  async "many commands at once over all keys"(r) {
    const keys = Array.from({ length: 60 }, (_, n) => key(`many${n}`));
    const added = await Promise.all(keys.flatMap((k) => [r.xadd(k, "*", "a", 1), r.xadd(k, "*", "a", 2)]));
    assert.equal(added.length, 120);
    assert.deepEqual(await Promise.all(keys.map((k) => r.xlen(k))), keys.map(() => 2));
  },

  async "a transaction on one tag is one unit"(r) {
    const [a, b] = [key("a", "both"), key("b", "both")];
    const replies = await r.multi().xadd(a, "*", "n", 1).xadd(b, "*", "n", 2).xlen(a).exec();
    assert.equal(replies[2][1], 1);
    assert.equal(await r.xlen(b), 1);
  },

  async "messages reach subscribers, by channel, pattern and shard"(r) {
    const own = connect({ shardedSubscribers: true });
    const [channel, shard] = [key("news"), key("shard")];
    const heard = { message: [], pmessage: [], smessage: [] };
    own.on("message", (c, text) => heard.message.push([c, text]));
    own.on("pmessage", (p, c, text) => heard.pmessage.push([p, c, text]));
    own.on("smessage", (c, text) => heard.smessage.push([c, text]));
    assert.equal(await own.subscribe(channel), 1);
    await own.psubscribe(`${channel}*`);
    await own.ssubscribe(shard);
    for (let n = 0; n < 50; n++) {
      await r.publish(channel, n);
      await r.spublish(shard, n);
    }
    const deadline = Date.now() + 10_000;
    while (Object.values(heard).some((all) => all.length < 50)) {
      assert.ok(Date.now() < deadline, JSON.stringify(heard));
      await new Promise((done) => setTimeout(done, 10));
    }
    const numbers = [...Array(50).keys()].map(String);
    // PUBLISH goes to some node each time, and there is an order only on the way from one.
    const sorted = (all) => all.sort((a, b) => a.at(-1) - b.at(-1));
    assert.deepEqual(sorted(heard.message), numbers.map((n) => [channel, n]));
    assert.deepEqual(sorted(heard.pmessage), numbers.map((n) => [`${channel}*`, channel, n]));
    assert.deepEqual(heard.smessage, numbers.map((n) => [shard, n]));
    own.disconnect();
  },

  async "replicas serve reads"(r) {
    const k = key("replica");
    const added = [];
    for (let n = 0; n < 5; n++) added.push(await r.xadd(k, "*", "n", n));
    const own = connect({ scaleReads: "all" });
    for (let n = 0, deadline = Date.now() + 10_000; n < 6; ) {
      const rows = await own.xrange(k, "-", "+");
      assert.deepEqual(ids(rows), added.slice(0, rows.length));
      if (rows.length === added.length) n++;
      else assert.ok(Date.now() < deadline, `still ${rows.length} entries`);
    }
    own.disconnect();
  },
};

const version = JSON.parse(readFileSync(new URL("./node_modules/ioredis/package.json", import.meta.url))).version;
const r = connect();
let failed = 0;
for (const [name, body] of Object.entries(tests)) {
  try {
    await body(r);
    console.log(`  ok    ${name}`);
  } catch (error) {
    failed++;
    console.log(`  FAIL  ${name}: ${error.stack ?? error}`);
  }
}
r.disconnect();
console.log(`ioredis ${version}: ${Object.keys(tests).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
