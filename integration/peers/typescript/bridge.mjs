// A bridge on the official TypeScript SDK's HTTP client: the editor is at standard input and output,
// the remote agent at the URL in the first argument. Ends where either side does.

import { Readable, Writable } from "node:stream";
import { ndJsonStream } from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";

const editor = ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin));
const agent = createHttpStream(process.argv[2]);

try {
  await Promise.all([
    editor.readable.pipeTo(agent.writable),
    agent.readable.pipeTo(editor.writable),
  ]);
} catch (error) {
  console.error(String(error));
  process.exitCode = 1;
}
process.exit();
