package dev.tenure.client;

import java.time.Instant;
import java.util.List;
import java.util.Optional;

/**
 * What is known of the past of some locks.
 *
 * @param batches the newest revisions that were asked for, the oldest first
 * @param archiveBegins the revision from which on the member has the events of these locks; nothing if it has no archive
 * @param archiveBeginsAt the time of the first event from there on, by the wall clock of that moment's leader
 * @param missing what the member could not record; another member may have it
 */
public record Past(
    List<Watch.Batch> batches, Optional<Long> archiveBegins, Optional<Instant> archiveBeginsAt, List<Missing> missing) {
  /**
   * Revisions that a member could not record.
   *
   * @param from the first one
   * @param next the one after the last
   */
  public record Missing(long from, long next) {}
}
