/**
 * The Java client of Tenure: holds locks, and stops the work under a lock before another client may start.
 *
 * <p>{@link dev.tenure.client.Client} connects; {@link dev.tenure.client.Guard} stands for a held lock.
 */
package dev.tenure.client;
