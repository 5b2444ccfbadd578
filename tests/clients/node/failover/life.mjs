// The same life as life.py's, for clients of Node. Usage of a life: FILE PORT PROTOCOL
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const OUTAGE_MS = 20_000;
const ENTRIES = 200;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
export const say = (line) => console.log(line);

export async function killTheLeaderOf(key) {
  say(`failover ${key}`);
  assert.equal((await lines.next()).value, "killed");
}

/** What an application does: repeats a call that failed. An append that failed may have happened all the same. */
export async function insist(call) {
  const deadline = Date.now() + OUTAGE_MS;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (error instanceof assert.AssertionError || Date.now() > deadline) throw error;
      await sleep(20);
    }
  }
}

const idsOf = (rows) => rows.map(([id]) => id);

/** `c`: add, range, createGroup, readGroup, blockingRead, ack, pending, claim; rows are `[id, {field: value}]`. */
async function live(c) {
  const tag = randomBytes(4).toString("hex");
  const [key, quiet] = [`life:{${tag}}:jobs`, `life:{${tag}}:quiet`];
  const added = [];
  for (let n = 0; n < ENTRIES; n++) added.push(await c.add(key, { n: `${n}`, bytes: "\u00e9\r\n" }));
  assert.equal(new Set(added).size, ENTRIES);
  const rows = await c.range(key);
  assert.deepEqual(idsOf(rows), added);
  assert.deepEqual({ ...rows[7][1] }, { n: "7", bytes: "\u00e9\r\n" });
  say("ok produce");

  await c.createGroup(key, "g");
  const alice = idsOf(await c.readGroup(key, "g", "alice", ENTRIES / 2));
  const bob = idsOf(await c.readGroup(key, "g", "bob", ENTRIES));
  assert.equal(alice.length, ENTRIES / 2);
  assert.deepEqual([...alice, ...bob], added);
  assert.equal(await c.ack(key, "g", bob), bob.length);
  assert.equal(await c.pending(key, "g"), alice.length);
  say("ok group");

  let woken;
  const reading = c.blockingRead(quiet, 10_000).then((found) => (woken = found));
  while (!woken) {
    // The reader may not wait yet.
    await c.add(quiet, { n: "wake" });
    await Promise.race([reading, sleep(50)]);
  }
  assert.deepEqual({ ...woken[0][1] }, { n: "wake" });
  say("ok blocking read");

  let killed = false;
  const killing = killTheLeaderOf(key).then(() => (killed = true));
  let [during, gap, last, afterKill] = [0, 0, Date.now(), 0];
  while (afterKill < ENTRIES) {
    added.push(await insist(() => c.add(key, { n: "during" })));
    during++;
    gap = Math.max(gap, Date.now() - last);
    last = Date.now();
    if (killed) afterKill++;
    await sleep(1);
  }
  await killing;
  const ids = new Set(idsOf(await insist(() => c.range(key))));
  assert.deepEqual(added.filter((id) => !ids.has(id)), [], "answered, and lost");
  say(`gap ${(gap / 1000).toFixed(2)}`);
  say(`ok failover: ${during} appended meanwhile, none lost`);

  const claimed = idsOf(await insist(() => c.claim(key, "g", "carol", ENTRIES)));
  assert.deepEqual(claimed, alice);
  assert.equal(await c.ack(key, "g", claimed), claimed.length);
  const rest = idsOf(await c.readGroup(key, "g", "carol", 100 * ENTRIES));
  assert.deepEqual(new Set(rest), new Set([...ids].filter((id) => !alice.includes(id) && !bob.includes(id))));
  assert.equal(await c.ack(key, "g", rest), rest.length);
  assert.equal(await c.pending(key, "g"), 0);
  say("ok reclaim");
}

/** `connect(port, protocol)` answers an adapter with `close()`. */
export async function main(connect) {
  const c = await connect(Number(process.argv[2]), Number(process.argv[3]));
  await live(c);
  await c.close();
  process.exit(0);
}
