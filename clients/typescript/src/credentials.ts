/** Holds the client's credentials, and decides where they may be sent. */
import { Invalid } from "./errors.js";
import { platform } from "./platform/platform.js";

const TOKEN_CHARS_MAX = 16 * 1024;

export type CredentialSource =
  | { readonly kind: "none" }
  | { readonly kind: "api_key"; readonly key: string }
  /** A bearer token in a file, which is read again for every connection. */
  | { readonly kind: "token_file"; readonly path: string };

/** The client's credentials. */
export class Credentials {
  constructor(
    private readonly source: CredentialSource,
    /** Whether they are sent in plain text to other machines, too. */
    private readonly insecure: boolean,
  ) {}

  /** Checks the form of an API key. The error does not show the key. */
  static apiKey(key: string): CredentialSource {
    const trimmed = key.trim();
    if (!/^tenure_[0-9a-f]{16}_[0-9a-f]{64}$/.test(trimmed)) {
      const form = "`tenure_`, 16 hexadecimal digits, `_` and 64 more";
      throw new Invalid("INVALID_FIELD", `apiKey: it is no API key: those are ${form}`);
    }
    return { kind: "api_key", key: trimmed };
  }

  /** Throws if they may not be sent to an address: only under TLS, on this machine, or if the user says so. */
  mayGoTo(address: string, tls: boolean): void {
    if (this.source.kind === "none" || tls || this.insecure || isLoopback(address)) return;
    const how = "use TLS (ca), or set insecureCredentials";
    throw new Invalid("INVALID_FIELD", `credentials are not sent to ${address} in plain text: ${how}`);
  }

  /** The value of the header `authorization`, if there are credentials. */
  authorization(): string | undefined {
    switch (this.source.kind) {
      case "none":
        return undefined;
      case "api_key":
        return `Bearer ${this.source.key}`;
      case "token_file": {
        const token = platform().readFile(this.source.path).trim();
        if (!/^[\x21-\x7e]+$/.test(token) || token.length > TOKEN_CHARS_MAX) {
          throw new Invalid("INVALID_FIELD", `there is no token in ${this.source.path}`);
        }
        return `Bearer ${token}`;
      }
    }
  }
}

/** Whether `host:port` is on this machine for certain. */
function isLoopback(address: string): boolean {
  const host = address.replace(/:\d*$/, "").replace(/^\[|\]$/g, "");
  return host === "localhost" || host === "::1" || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);
}
