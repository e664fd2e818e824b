// Starts a server before a member: it answers what a test gives answers for, and passes everything else on.
import { connect, createServer } from "node:net";
import { once } from "node:events";

/**
 * `answers` has the answers to queries whose path has `part` in it, in order; the last one stays. An answer is a status
 * and a body, and further headers with their ends; `undefined` for a connection that breaks, or "silence".
 */
export async function startFront(target, part, answers) {
  const asked = [];
  const askedAt = [];
  const sent = [];
  const sockets = new Set();
  const [host, port] = target.split(":");
  const server = createServer((from) => {
    sockets.add(from);
    from.on("error", () => undefined);
    from.once("data", (data) => {
      const [, path] = /^GET (\S+) HTTP/.exec(data.toString("latin1")) ?? [];
      if (path?.includes(part)) {
        const answer = answers[Math.min(asked.length, answers.length - 1)];
        askedAt.push(performance.now());
        asked.push(new URL(path, `http://${target}`));
        if (answer === undefined) return from.destroy();
        if (answer === "silence") return;
        const [status, body, headers = ""] = answer;
        return from.end(`HTTP/1.1 ${status} -\r\n${headers}content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`);
      }
      const to = connect({ host, port: Number(port) });
      sockets.add(to);
      const end = () => (from.destroy(), to.destroy());
      to.on("error", end).on("close", end);
      from.on("close", end);
      const frames = readFrames(sent);
      from.on("data", (more) => (frames(more), to.write(more)));
      to.on("data", (more) => from.write(more));
      frames(data);
      to.write(data);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    address: `127.0.0.1:${server.address().port}`,
    /** The queries that were answered here. */
    asked,
    /** When, in milliseconds. */
    askedAt,
    /** The requests of sessions with a command. */
    sent: (command) => sent.filter((it) => command in it),
    stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

/** Returns what takes the bytes that a client sends, and adds the requests in its messages (RFC 6455, masked) to a list. */
function readFrames(to) {
  let rest = Buffer.alloc(0);
  let isUpgraded = false;
  return (data) => {
    rest = Buffer.concat([rest, data]);
    if (!isUpgraded) {
      const head = rest.indexOf("\r\n\r\n");
      if (head < 0) return;
      isUpgraded = true;
      rest = rest.subarray(head + 4);
    }
    while (rest.length >= 2) {
      const short = rest[1] & 0x7f;
      const at = short === 127 ? 10 : short === 126 ? 4 : 2;
      if (rest.length < at + 4) return;
      const length = short === 127 ? Number(rest.readBigUInt64BE(2)) : short === 126 ? rest.readUInt16BE(2) : short;
      if (rest.length < at + 4 + length) return;
      const text = rest.subarray(at + 4, at + 4 + length).map((byte, index) => byte ^ rest[at + (index % 4)]);
      if ((rest[0] & 0x0f) === 1) to.push(...(JSON.parse(Buffer.from(text).toString()).requests ?? []));
      rest = rest.subarray(at + 4 + length);
    }
  };
}
