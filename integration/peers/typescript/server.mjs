// Serves a scripted agent on the official TypeScript SDK's HTTP and WebSocket server, at a free port of 127.0.0.1.
//
// Prints the port as its only line on standard output and ends with its standard input. The prompts
// are those of the agent on the official Rust server: echo TEXT, flood N BYTES, ask TITLE, hold.

import { createServer } from "node:http";
import { agent, methods, RequestError } from "@agentclientprotocol/sdk";
import {
  createNodeHttpHandler,
  createNodeWebSocketUpgradeHandler,
} from "@agentclientprotocol/sdk/experimental/node";
import { AcpServer } from "@agentclientprotocol/sdk/experimental/server";
import { WebSocketServer } from "ws";

// What the agent keeps, whatever connections come and go: the updates of each session's turns, and
// what ends a turn that holds.
const sessions = new Map();
let created = 0;

const initialized = {
  protocolVersion: 1,
  agentCapabilities: {
    loadSession: true,
    promptCapabilities: { image: true },
    sessionCapabilities: { resume: {}, list: {}, close: {} },
  },
  agentInfo: { name: "scripted", version: "1" },
  authMethods: [],
};

function sessionOf(params) {
  const session = sessions.get(params.sessionId);
  if (session === undefined) {
    throw RequestError.invalidParams();
  }
  return session;
}

function chunk(kind, text) {
  return { sessionUpdate: kind, content: { type: "text", text } };
}

class Turn {
  constructor({ params, client }) {
    this.sessionId = params.sessionId;
    this.session = sessionOf(params);
    this.client = client;
  }

  async say(text) {
    const update = chunk("agent_message_chunk", text);
    this.session.history.push(update);
    await this.update(update);
  }

  async update(update) {
    await this.client.notify(methods.client.session.update, { sessionId: this.sessionId, update });
  }

  async flood(sizes) {
    const [count, bytes] = sizes.split(" ").map(Number);
    for (let number = 0; number < count; number += 1) {
      await this.update(chunk("agent_message_chunk", `${number} `.padEnd(bytes, "x")));
    }
  }

  async ask(title) {
    const { outcome } = await this.client.request(methods.client.session.requestPermission, {
      sessionId: this.sessionId,
      toolCall: { toolCallId: "call", title },
      options: [
        { optionId: "yes", name: "Allow", kind: "allow_once" },
        { optionId: "no", name: "Reject", kind: "reject_once" },
      ],
    });
    await this.say(`chosen: ${outcome.optionId ?? ""}`);
  }

  async hold() {
    const cancelled = new Promise((resolve) => {
      this.session.cancel = resolve;
    });
    await this.say("holding");
    await cancelled;
  }

  async take(prompt) {
    this.session.history.push(chunk("user_message_chunk", prompt));
    const [, command, rest] = /^(\S*) ?(.*)$/s.exec(prompt);
    switch (command) {
      case "echo":
        await this.say(rest);
        return "end_turn";
      case "flood":
        await this.flood(rest);
        return "end_turn";
      case "ask":
        await this.ask(rest);
        return "end_turn";
      case "hold":
        await this.hold();
        return "cancelled";
      default:
        return "end_turn";
    }
  }
}

function createAgent() {
  return agent({ name: "scripted" })
    .onRequest(methods.agent.initialize, () => initialized)
    .onRequest(methods.agent.session.new, ({ params }) => {
      created += 1;
      const sessionId = `session-${created}`;
      sessions.set(sessionId, { cwd: params.cwd, history: [], cancel() {} });
      return { sessionId };
    })
    .onRequest(methods.agent.session.list, () => ({
      sessions: [...sessions].map(([sessionId, { cwd }]) => ({ sessionId, cwd })),
    }))
    .onRequest(methods.agent.session.load, async ({ params, client }) => {
      for (const update of sessionOf(params).history) {
        await client.notify(methods.client.session.update, { sessionId: params.sessionId, update });
      }
      return {};
    })
    .onRequest(methods.agent.session.resume, ({ params }) => {
      sessionOf(params);
      return {};
    })
    .onRequest(methods.agent.session.close, ({ params }) => {
      sessionOf(params);
      sessions.delete(params.sessionId);
      return {};
    })
    .onRequest(methods.agent.session.prompt, async (context) => {
      const stopReason = await new Turn(context).take(context.params.prompt[0]?.text ?? "");
      const meta = context.params._meta;
      return meta === undefined ? { stopReason } : { stopReason, _meta: meta };
    })
    .onNotification(methods.agent.session.cancel, ({ params }) => {
      sessions.get(params.sessionId)?.cancel();
    });
}

const acp = new AcpServer({ createAgent });
const server = createServer(createNodeHttpHandler(acp));
server.on("upgrade", createNodeWebSocketUpgradeHandler(acp, new WebSocketServer({ noServer: true })));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
