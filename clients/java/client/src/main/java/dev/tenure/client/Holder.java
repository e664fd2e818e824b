package dev.tenure.client;

import java.time.Duration;

/**
 * One grant of a lock that is in force, as the cluster shows it.
 *
 * @param client the name of the client that holds it
 * @param token the fencing token of the grant
 * @param held for how long it is held
 * @param state {@code held}, {@code cooling} while it is revoking, {@code delayed} during a lock-delay
 */
public record Holder(String client, long token, Duration held, String state) {}
