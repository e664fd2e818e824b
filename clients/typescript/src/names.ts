/** Checks the names of locks, keys and elections, and the ids of leases, before anything is sent. */
import { Invalid } from "./errors.js";

/** As many bytes of UTF-8 as the cluster allows. */
const NAME_BYTES_MAX = 512;

/** Returns the name, or throws `Invalid` with the reason that the cluster would give. */
export function checkedName(name: unknown): string {
  const fits =
    typeof name === "string" &&
    name.length > 0 &&
    new TextEncoder().encode(name).length <= NAME_BYTES_MAX &&
    // eslint-disable-next-line no-control-regex
    !/[\u0000-\u001f\u007f-\u009f]/.test(name);
  if (!fits) {
    const message = "a name has 1 to 512 bytes of UTF-8 without control characters";
    throw new Invalid("INVALID_NAME", message);
  }
  return name;
}

/** Returns the id of a lease as the message has it, or throws `Invalid`. */
export function checkedLease(lease: string | { readonly id: string }): string {
  const id = typeof lease === "string" ? lease : lease.id;
  if (!/^[1-9][0-9]{0,19}$/.test(id)) throw new Invalid("INVALID_FIELD", `lease is the id of a lease, not ${id}`);
  return id;
}
