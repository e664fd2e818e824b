/** Defines `Symbol.asyncDispose` where the runtime has none, so that `await using` works once it is compiled. */

/** Node 18.0 to 18.17 and older browsers lack the symbol; TypeScript's helpers look it up under this name. */
export function defineAsyncDispose(): void {
  if (typeof Symbol.asyncDispose === "symbol") return;
  Object.defineProperty(Symbol, "asyncDispose", { value: Symbol.for("Symbol.asyncDispose") });
}

defineAsyncDispose();
