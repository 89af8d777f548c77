/**
 * Client of Isotone, a highly available timestamp oracle and ID service.
 *
 * @packageDocumentation
 */
export { Client, idsMax } from "./client.js";
export { type Code, IsotoneError } from "./errors.js";
export { Generator, type GeneratorOptions } from "./generator.js";
export type { Answer, CallOptions, Credentials, Hooks, Options, TimestampOptions } from "./options.js";
export type { ReadMode } from "./resp.js";
export type { Lease } from "./sequence.js";
export { Layout, formatBase62, formatHex, parseBase62, parseHex, parseId } from "./snowflake.js";
export { Range, Timestamp, parseTimestamp64, parts64, timestamps64Max, timestampsMax } from "./timestamp.js";
