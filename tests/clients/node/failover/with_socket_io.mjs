// Two Socket.IO servers that share a stream by @socket.io/redis-streams-adapter; events cross it through a failover.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { createAdapter } from "@socket.io/redis-streams-adapter";
import { Cluster } from "ioredis";
import { Server } from "socket.io";
import { io as connect } from "socket.io-client";
import { killTheLeaderOf, say } from "./life.mjs";

const EVENTS = 50;
const port = Number(process.argv[2]);
const stream = `life:${randomBytes(4).toString("hex")}:socket.io`;

async function server() {
  const redis = new Cluster([{ host: "127.0.0.1", port }]);
  redis.on("error", () => {});
  const http = createServer();
  const io = new Server(http, { adapter: createAdapter(redis, { streamName: stream, blockTimeInMs: 500 }) });
  await new Promise((resolve) => http.listen(0, resolve));
  return { io, port: http.address().port };
}

const [here, there] = [await server(), await server()];
const got = new Set();
const client = connect(`http://127.0.0.1:${there.port}`);
client.on("event", (n) => got.add(n));
await new Promise((resolve) => client.on("connect", resolve));

async function arrives(n) {
  const deadline = Date.now() + 20_000;
  while (!got.has(n)) {
    assert.ok(Date.now() < deadline, `event ${n} never came`);
    // An emit during the outage may be lost by the adapter, which says nothing of it: it is sent again.
    here.io.emit("event", n);
    await sleep(50);
  }
}

for (let n = 0; n < EVENTS; n++) await arrives(n);
say("ok events");
await killTheLeaderOf(stream);
for (let n = EVENTS; n < 2 * EVENTS; n++) await arrives(n);
say("ok failover: events go on");
process.exit(0);
