package dev.tenure.client;

/** Whether a lease, and what it holds, may still be relied on. */
public enum Standing {
  /** A renewal was acknowledged recently. */
  VALID,
  /** The lease is still held, but renewals have not been acknowledged for longer than they should take. */
  OVERDUE,
  /** The lease is over, for ever. */
  LOST
}
