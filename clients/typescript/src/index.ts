/**
 * Client for Tenure on Node: locks that tell their holder to stop before the next one starts.
 *
 * @packageDocumentation
 */
import { nodePlatform } from "./platform/node.js";
import { setPlatform } from "./platform/platform.js";

setPlatform(nodePlatform);

export * from "./api.js";
