package dev.tenure.client;

import dev.tenure.client.internal.Core;
import dev.tenure.client.internal.EventStream;
import dev.tenure.client.internal.Futures;
import java.util.Optional;
import java.util.function.UnaryOperator;

/**
 * An election: a lock whose metadata is the leader's value.
 *
 * <pre>{@code
 * try (Leadership lead = client.election("billing").campaign("10.0.0.5:9000")) {
 *   lead.guard().run(guard -> serve());
 * }
 * }</pre>
 */
public final class Election {
  private final Core core;
  private final String name;

  Election(Core core, String name) {
    this.core = core;
    this.name = name;
  }

  /**
   * Waits in the queue until this client leads.
   *
   * @param value what other clients see, such as an address
   * @return the leadership
   * @throws InterruptedException if the thread is interrupted; the candidacy is given up
   */
  public Leadership campaign(String value) throws InterruptedException {
    return campaign(value, UnaryOperator.identity());
  }

  /**
   * Campaigns with further options, such as how long to wait or which ttl.
   *
   * @param value what other clients see
   * @param options sets the options of the request
   * @return the leadership
   * @throws InterruptedException if the thread is interrupted; the candidacy is given up
   */
  public Leadership campaign(String value, UnaryOperator<LockRequest> options) throws InterruptedException {
    LockRequest request = new LockRequest(core, null, java.util.List.of(name));
    return new Leadership(options.apply(request).metadata(value).election().acquire());
  }

  /**
   * Returns the current leader.
   *
   * @return the leader; nothing if the election is vacant
   * @throws InterruptedException if the thread is interrupted
   */
  public Optional<Leader> leader() throws InterruptedException {
    try (LeaderObserver seen = observe()) {
      return seen.next();
    }
  }

  /**
   * Observes who leads, from now on.
   *
   * @return the observer; its first change is the current state
   * @throws InterruptedException if the thread is interrupted
   */
  public LeaderObserver observe() throws InterruptedException {
    dev.tenure.client.internal.AskOptions.checkName(name);
    return new LeaderObserver(Futures.await(EventStream.start(core, new LeaderObserver.Changes(name)), () -> {}));
  }
}
