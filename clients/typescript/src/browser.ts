/**
 * Client for Tenure in browsers, over the browser's own WebSocket.
 *
 * @packageDocumentation
 */
import { browserPlatform } from "./platform/browser.js";
import { setPlatform } from "./platform/platform.js";

setPlatform(browserPlatform);

export * from "./api.js";
