package dev.tenure.client;

import java.util.OptionalInt;

/**
 * One lock of a guard.
 *
 * @param name the lock's name
 * @param token the fencing token of the grant
 * @param slot the slot of a semaphore, counted from 0; empty for a plain lock
 */
public record HeldLock(String name, long token, OptionalInt slot) {}
