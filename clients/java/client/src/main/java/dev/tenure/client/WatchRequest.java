package dev.tenure.client;

import dev.tenure.client.internal.Core;
import dev.tenure.client.internal.EventStream;
import dev.tenure.client.internal.Futures;

/** A request for a watch. Nothing is watched until {@link #start} is called. */
public final class WatchRequest {
  private final Core core;
  private final String name;
  private final boolean prefix;
  private long from;
  private boolean previous;

  WatchRequest(Core core, String name, boolean prefix) {
    this.core = core;
    this.name = name;
    this.prefix = prefix;
  }

  /**
   * Begins at a revision instead of now.
   *
   * @param revision the first revision to tell
   * @return this request
   */
  public WatchRequest from(long revision) {
    this.from = revision;
    return this;
  }

  /**
   * Asks for what was there before each change.
   *
   * @return this request
   */
  public WatchRequest withPrevious() {
    this.previous = true;
    return this;
  }

  /**
   * Starts the watch, and returns when it has begun: whatever happens from then on is told.
   *
   * @return the watch
   * @throws InterruptedException if the thread is interrupted
   * @throws CompactedException if the history does not reach back to the revision
   */
  public Watch start() throws InterruptedException {
    Watch.Changes changes = new Watch.Changes(name, prefix, previous, from);
    return new Watch(Futures.await(EventStream.start(core, changes), () -> {}));
  }
}
