package dev.tenure.shedlock;

import dev.tenure.client.Client;
import dev.tenure.client.Guard;
import dev.tenure.client.LockRequest;
import dev.tenure.client.TenureException;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/**
 * Keeps the locks of ShedLock in a Tenure cluster.
 *
 * <pre>{@code
 * @Bean
 * LockProvider lockProvider(Client tenure) {
 *   return new TenureLockProvider(tenure);
 * }
 * }</pre>
 *
 * <p>What differs from providers that store a time: the lease is renewed while the task runs, so a process that dies
 * frees its lock after the ttl, and not after {@code lockAtMostFor}. If the lock is lost, the thread that took it is
 * interrupted before another process may start. {@code lockAtMostFor} is the longest time the lock is held: then the
 * cluster takes it away, which interrupts the thread, too. {@code lockAtLeastFor} holds as long as this process lives.
 */
public final class TenureLockProvider implements LockProvider {
  private static final Duration TTL = Duration.ofSeconds(15);
  private static final Duration TTL_MIN = Duration.ofSeconds(1);

  private final Client client;
  private final String prefix;

  /**
   * Makes a provider whose locks are called {@code shedlock/NAME} in the cluster.
   *
   * @param client the client; the caller closes it after the last task has ended
   */
  public TenureLockProvider(Client client) {
    this(client, "shedlock/");
  }

  /**
   * Makes a provider.
   *
   * @param client the client; the caller closes it after the last task has ended
   * @param prefix what precedes the names of locks in the cluster
   */
  public TenureLockProvider(Client client, String prefix) {
    this.client = client;
    this.prefix = prefix;
  }

  @Override
  public Optional<SimpleLock> lock(LockConfiguration configuration) {
    try {
      Optional<Guard> guard = request(configuration).tryAcquire();
      return guard.map(it -> new TenureLock(it, configuration));
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new LockException("interrupted while taking lock " + configuration.getName(), interrupted);
    } catch (TenureException error) {
      throw new LockException("cannot take lock " + configuration.getName(), error);
    }
  }

  private LockRequest request(LockConfiguration configuration) {
    Duration most = configuration.getLockAtMostFor();
    Duration half = most.dividedBy(2);
    Duration ttl = half.compareTo(TTL) < 0 ? half : TTL;
    ttl = ttl.compareTo(TTL_MIN) < 0 ? TTL_MIN : ttl;
    // The cluster wants a maximum hold that is longer than the ttl.
    Duration hold = most.compareTo(ttl) > 0 ? most : ttl.plusMillis(1);
    return client.request(prefix + configuration.getName()).ttl(ttl).maxHold(hold);
  }
}
