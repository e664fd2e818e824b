package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.internal.AskOptions;
import dev.tenure.client.internal.Core;
import dev.tenure.client.internal.Futures;
import dev.tenure.client.internal.HttpCalls;
import dev.tenure.client.internal.Identity;
import dev.tenure.client.internal.Json;
import dev.tenure.client.internal.Streams;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A connection to a Tenure cluster: locks, leases, elections, keys and watches.
 *
 * <pre>{@code
 * try (Client client = Client.fromEnv()) {
 *   client.run("deploy", guard -> migrate(guard.token()));
 * }
 * }</pre>
 *
 * <p>One client serves a whole process: it is safe for use by any number of threads, platform or virtual, and renews all
 * of its leases with few messages. It has three threads of its own, and those of the JDK's HTTP client.
 */
public final class Client implements AutoCloseable {
  private final Core core;

  Client(Core core) {
    this.core = core;
  }

  /**
   * Connects to a cluster.
   *
   * @param addresses one or more {@code host:port}, with commas between
   * @return the client
   * @throws InterruptedException if the thread is interrupted
   */
  public static Client connect(String addresses) throws InterruptedException {
    return builder().addresses(addresses).connect();
  }

  /**
   * Connects as the environment says: {@code TENURE_ADDR} (else {@code 127.0.0.1:7450}), {@code TENURE_CA}, {@code
   * TENURE_CERT}, {@code TENURE_KEY}, and {@code TENURE_API_KEY}, {@code TENURE_API_KEY_FILE} or {@code
   * TENURE_TOKEN_FILE}.
   *
   * @return the client
   * @throws InterruptedException if the thread is interrupted
   */
  public static Client fromEnv() throws InterruptedException {
    return builder().fromEnv().connect();
  }

  /**
   * Begins the settings of a client.
   *
   * @return the builder
   */
  public static ClientBuilder builder() {
    return new ClientBuilder();
  }

  /**
   * Returns the client's name, which others see.
   *
   * @return the name
   */
  public String name() {
    return core.settings.name();
  }

  /**
   * Waits in the queue until the lock is held, on a lease of its own.
   *
   * @param lock the name of the lock
   * @return the guard of the lock
   * @throws InterruptedException if the thread is interrupted; the place in the queue is given up
   */
  public Guard lock(String lock) throws InterruptedException {
    return request(lock).acquire();
  }

  /**
   * Does what {@link #lock} does without a thread that waits. Cancelling the future gives the place up.
   *
   * @param lock the name of the lock
   * @return completes with the guard
   */
  public CompletableFuture<Guard> lockAsync(String lock) {
    return request(lock).acquireAsync();
  }

  /**
   * Acquires the lock if it is free.
   *
   * @param lock the name of the lock
   * @return the guard; nothing if another client holds the lock
   * @throws InterruptedException if the thread is interrupted
   */
  public Optional<Guard> tryLock(String lock) throws InterruptedException {
    return request(lock).tryAcquire();
  }

  /**
   * Acquires the lock if it becomes free within a time.
   *
   * @param lock the name of the lock
   * @param wait how long to queue
   * @return the guard; nothing if the wait is over
   * @throws InterruptedException if the thread is interrupted; the place in the queue is given up
   */
  public Optional<Guard> tryLock(String lock, Duration wait) throws InterruptedException {
    return request(lock).waitAtMost(wait).tryAcquire();
  }

  /**
   * Acquires the lock, runs the work in this thread, and gives the lock back. If the lock is lost, the thread is
   * interrupted before another client may start.
   *
   * @param lock the name of the lock
   * @param work the work; an interrupt means that it must stop
   * @param <X> what the work may throw
   * @throws X if the work fails while the lock is held
   * @throws InterruptedException if the thread is interrupted while it waits for the lock
   * @throws LostException if the lock was lost before the work had ended: this never returns normally then
   */
  public <X extends Exception> void run(String lock, Action<X> work) throws X, InterruptedException {
    request(lock).run(work);
  }

  /**
   * Does what {@link #run} does, for work with a result.
   *
   * @param lock the name of the lock
   * @param work the work; an interrupt means that it must stop
   * @param <T> what the work returns
   * @param <X> what the work may throw
   * @return what the work returned, if the lock was held until it had ended
   * @throws X if the work fails while the lock is held
   * @throws InterruptedException if the thread is interrupted while it waits for the lock
   * @throws LostException if the lock was lost before the work had ended
   */
  public <T, X extends Exception> T call(String lock, Work<T, X> work) throws X, InterruptedException {
    return request(lock).call(work);
  }

  /**
   * Begins a request for a lock, or for several that are acquired together or not at all.
   *
   * @param locks the names of the locks
   * @return the request, on a lease of its own
   */
  public LockRequest request(String... locks) {
    return new LockRequest(core, null, List.of(locks));
  }

  /**
   * Waits until any one of several locks is held, on a lease of its own: the first, in the order of names, that is free.
   * Until then the request waits in the queues of all of them and keeps its turn in each. {@link Guard#name} tells which
   * one it is. Needs feature level 13.
   *
   * @param locks the names of the locks
   * @return the guard of the lock that was granted
   * @throws InterruptedException if the thread is interrupted; the places in the queues are given up
   */
  public Guard lockAny(String... locks) throws InterruptedException {
    return requestAny(locks).acquire();
  }

  /**
   * Begins a request for any one of several locks; see {@link #lockAny}.
   *
   * @param locks the names of the locks
   * @return the request, on a lease of its own
   */
  public LockRequest requestAny(String... locks) {
    return new LockRequest(core, null, AskOptions.Choice.ANY, List.of(locks));
  }

  /**
   * Begins a request for any slot of a pool: {@code client.pool("gpu/").acquire()}. The slots of {@code gpu/} are the
   * semaphores below this prefix whose sizes an operator has set with {@link #resize}. The request also waits for slots
   * that are added later. {@link Guard#name} tells which slot it is. The request is refused with {@code POOL_EMPTY} if
   * there is none, or none as large as {@link LockRequest#take} says. Needs feature level 13.
   *
   * @param prefix the prefix of the pool
   * @return the request, on a lease of its own
   */
  public LockRequest pool(String prefix) {
    return new LockRequest(core, null, AskOptions.Choice.POOL, List.of(prefix));
  }

  /**
   * Takes a lease, under which several locks and keys are held, and lost, together.
   *
   * @param ttl how long it lives after a renewal
   * @return the lease
   * @throws InterruptedException if the thread is interrupted
   */
  public Lease lease(Duration ttl) throws InterruptedException {
    if (core.isClosing()) {
      throw new ClosedException();
    }
    AskOptions ask = new AskOptions(List.of());
    ask.ttl = ttl;
    return new Lease(core, Futures.await(core.grantLease(ask), () -> {}));
  }

  /**
   * Returns the election of this name. Elections and locks share one namespace.
   *
   * @param name the name
   * @return the election
   */
  public Election election(String name) {
    return new Election(core, name);
  }

  /**
   * Returns a key of the cluster's small key-value store.
   *
   * @param name the name
   * @return a request about the key
   */
  public Key key(String name) {
    return new Key(core, name);
  }

  /**
   * Watches the lock and the key of exactly this name.
   *
   * @param name the name
   * @return the request for the watch
   */
  public WatchRequest watch(String name) {
    return new WatchRequest(core, name, false);
  }

  /**
   * Watches all locks and keys whose names begin so.
   *
   * @param prefix the beginning; empty for all
   * @return the request for the watch
   */
  public WatchRequest watchPrefix(String prefix) {
    return new WatchRequest(core, prefix, true);
  }

  /**
   * Shows a lock.
   *
   * @param lock its name
   * @return the lock; nothing if no client holds or awaits it
   * @throws InterruptedException if the thread is interrupted
   */
  public Optional<LockInfo> show(String lock) throws InterruptedException {
    AskOptions.checkName(lock);
    ObjectNode command = Json.object();
    command.putObject("get_lock").put("name", lock);
    JsonNode shown = Futures.await(core.request(command, "lock", Identity.HARMLESS), () -> {}).path("lock");
    return shown.isObject() ? Optional.of(LockInfo.of(shown)) : Optional.empty();
  }

  /**
   * Explains who has a lock, who waits, and when it can be free.
   *
   * @param lock its name
   * @return the explanation
   * @throws InterruptedException if the thread is interrupted
   */
  public Explanation explain(String lock) throws InterruptedException {
    return explained(Json.object().put("lock", lock));
  }

  /**
   * Explains a lock to a lease: who is before it in the queue, and its own position.
   *
   * @param lock its name
   * @param lease the id of the lease
   * @return the explanation
   * @throws InterruptedException if the thread is interrupted
   */
  public Explanation explain(String lock, String lease) throws InterruptedException {
    AskOptions.checkLease(lease);
    return explained(Json.object().put("lock", lock).put("lease", lease));
  }

  private Explanation explained(ObjectNode which) throws InterruptedException {
    AskOptions.checkName(which.path("lock").asText());
    ObjectNode command = Json.object();
    command.set("explain", which);
    return Explanation.of(Futures.await(core.request(command, "explained", Identity.HARMLESS), () -> {}));
  }

  /**
   * Lists locks that are held or awaited.
   *
   * @param prefix the beginning of their names; empty for all
   * @return the locks, in the order of their names
   * @throws InterruptedException if the thread is interrupted
   */
  public List<LockInfo> locks(String prefix) throws InterruptedException {
    List<LockInfo> locks = new ArrayList<>();
    String after = "";
    do {
      String path = "/v1/locks?prefix=" + Streams.query(prefix);
      path += after.isEmpty() ? "" : "&after=" + Streams.query(after);
      JsonNode page = Futures.await(HttpCalls.ask(core, path, null), () -> {});
      page.path("locks").forEach(it -> locks.add(LockInfo.of(it)));
      after = page.path("next").asText("");
    } while (!after.isEmpty());
    return locks;
  }

  /**
   * Begins a search of what happened to a lock: its newest revisions, from the cluster and from the archive of the member
   * that answers.
   *
   * @param lock its name
   * @return the search
   */
  public HistoryRequest history(String lock) {
    return new HistoryRequest(core, lock, false);
  }

  /**
   * Begins a search of what happened to all locks whose names begin so.
   *
   * @param prefix the beginning; empty for all
   * @return the search
   */
  public HistoryRequest historyPrefix(String prefix) {
    return new HistoryRequest(core, prefix, true);
  }

  /**
   * Takes a lock away from its holder, who is told the reason. The lock is revoking until the holder has stopped, or
   * until its lease would have ended.
   *
   * @param lock its name
   * @param token the token that the caller was shown, so that no other holder is hit
   * @param reason why, for the record and for the holder
   * @return for how long the lock is revoking at most
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public Duration force(String lock, long token, String reason) throws InterruptedException {
    return force(lock, token, reason, name(), false);
  }

  /**
   * Takes a lock away from its holder in the name of someone else, such as the operator at a console.
   *
   * @param lock its name
   * @param token the token that the caller was shown, so that no other holder is hit
   * @param reason why, for the record and for the holder
   * @param by who decided it, for the record and for the holder
   * @return for how long the lock is revoking at most
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public Duration force(String lock, long token, String reason, String by) throws InterruptedException {
    return force(lock, token, reason, by, false);
  }

  /**
   * Takes a lock away at once, without letting the holder stop first. Only a fence protects the resource then.
   *
   * @param lock its name
   * @param token the token that the caller was shown
   * @param reason why, for the record and for the holder
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void forceNow(String lock, long token, String reason) throws InterruptedException {
    force(lock, token, reason, name(), true);
  }

  /**
   * Takes a lock away at once in the name of someone else.
   *
   * @param lock its name
   * @param token the token that the caller was shown
   * @param reason why, for the record and for the holder
   * @param by who decided it, for the record and for the holder
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void forceNow(String lock, long token, String reason, String by) throws InterruptedException {
    force(lock, token, reason, by, true);
  }

  private Duration force(String lock, long token, String reason, String by, boolean now) throws InterruptedException {
    AskOptions.checkName(lock);
    ObjectNode command = Json.object();
    ObjectNode force = command.putObject("force").put("lock", lock).put("token", Json.decimal(token));
    force.put("reason", reason).put("by", by);
    if (now) {
      force.put("now", true);
    }
    JsonNode forced = Futures.await(core.request(command, "forced", Identity.random()), () -> {});
    return Duration.ofMillis(forced.path("left_ms").asLong());
  }

  /**
   * Ends the lease of another client and everything bound to it. The holder is told the reason and this client's name; its
   * locks pass on when it has stopped, or when the lease would have ended.
   *
   * @param lease the id of the lease
   * @param reason why, for the record and for the holder
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void revoke(String lease, String reason) throws InterruptedException {
    revoke(lease, reason, name(), false);
  }

  /**
   * Ends the lease of another client in the name of someone else.
   *
   * @param lease the id of the lease
   * @param reason why, for the record and for the holder
   * @param by who decided it, for the record and for the holder
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void revoke(String lease, String reason, String by) throws InterruptedException {
    revoke(lease, reason, by, false);
  }

  /**
   * Ends the lease of another client at once, without letting its holder stop first. Only a fence protects the resource
   * then.
   *
   * @param lease the id of the lease
   * @param reason why, for the record and for the holder
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void revokeNow(String lease, String reason) throws InterruptedException {
    revoke(lease, reason, name(), true);
  }

  /**
   * Ends the lease of another client at once in the name of someone else.
   *
   * @param lease the id of the lease
   * @param reason why, for the record and for the holder
   * @param by who decided it, for the record and for the holder
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void revokeNow(String lease, String reason, String by) throws InterruptedException {
    revoke(lease, reason, by, true);
  }

  private void revoke(String lease, String reason, String by, boolean now) throws InterruptedException {
    AskOptions.checkLease(lease);
    ObjectNode command = Json.object();
    ObjectNode revoke = command.putObject("revoke").put("lease", lease).put("reason", reason).put("by", by);
    if (now) {
      revoke.put("now", true);
    }
    Futures.await(core.request(command, "revoked", Identity.random()), () -> {});
  }

  /**
   * Sets how many slots a semaphore has, also while it is used. From then on this number counts, whatever number a
   * request names. More slots are granted at once. With fewer, every holder keeps its slots, and a client that waits for
   * more slots than there are is refused. Needs feature level 11.
   *
   * @param lock the name of the semaphore
   * @param slots the number of slots
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void resize(String lock, int slots) throws InterruptedException {
    if (slots < 1) {
      throw new InvalidRequestException("INVALID_SLOTS", "a semaphore has one slot at least");
    }
    sendSize(lock, slots);
  }

  /**
   * Leaves the number of slots of a semaphore to the requests again: to the first one after it was not used.
   *
   * @param lock the name of the semaphore
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void resizeByRequests(String lock) throws InterruptedException {
    sendSize(lock, 0);
  }

  private void sendSize(String lock, int slots) throws InterruptedException {
    AskOptions.checkName(lock);
    ObjectNode command = Json.object();
    command.putObject("resize").put("lock", lock).put("slots", slots).put("by", name());
    Futures.await(core.request(command, "resized", Identity.random()), () -> {});
  }

  /**
   * Closes a prefix: no lock whose name begins so is granted until {@link #undrain} opens it. Clients that ask queue, or
   * are refused with {@code DRAINING} if they do not wait. Holders keep their locks and finish.
   *
   * @param prefix the beginning of the names; empty for all locks
   * @param reason why, for those who wait
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public void drain(String prefix, String reason) throws InterruptedException {
    ObjectNode command = Json.object();
    command.putObject("drain").put("prefix", prefix).put("reason", reason).put("by", name());
    Futures.await(core.request(command, "drained", Identity.random()), () -> {});
  }

  /**
   * Opens a prefix that {@link #drain} closed; its queues go on in order.
   *
   * @param prefix the prefix, exactly as it was closed
   * @return whether it was closed
   * @throws InterruptedException if the thread is interrupted; the outcome is not known then
   */
  public boolean undrain(String prefix) throws InterruptedException {
    ObjectNode command = Json.object();
    command.putObject("undrain").put("prefix", prefix).put("by", name());
    JsonNode opened = Futures.await(core.request(command, "undrained", Identity.random()), () -> {});
    return opened.path("existed").asBoolean();
  }

  /**
   * Lists the prefixes that are closed, with how many holders are left below each.
   *
   * @return the prefixes, in order
   * @throws InterruptedException if the thread is interrupted
   */
  public List<Drain> drains() throws InterruptedException {
    List<Drain> drains = new ArrayList<>();
    Futures.await(HttpCalls.ask(core, "/v1/drains", null), () -> {}).path("drains").forEach(it -> drains.add(Drain.of(it)));
    return drains;
  }

  /**
   * Closes the client: takes no more requests, gives up every place in a queue, ends every lease without open guards,
   * and waits until the cluster has acknowledged that and every guard is closed.
   *
   * @param within how long to wait
   * @throws InterruptedException if the thread is interrupted
   * @throws StillHeldException if guards are open at the end of the time; they are still renewed, and the client may be
   *     closed again
   * @throws UnknownOutcomeException if a release was not acknowledged in time; what is left ends with its lease
   */
  public void close(Duration within) throws InterruptedException {
    core.close(within);
  }

  /**
   * Closes the client within its timeout. Guards that are still open end with the client: their leases are not renewed
   * any more.
   */
  @Override
  public void close() {
    try {
      core.close(core.settings.timeout().compareTo(Duration.ofSeconds(1)) < 0 ? core.settings.timeout() : CLOSE);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    } catch (StillHeldException | UnknownOutcomeException left) {
      LOG.log(System.Logger.Level.WARNING, "the client is closed: {0}", left.getMessage());
    } finally {
      core.stop();
    }
  }

  private static final System.Logger LOG = System.getLogger("dev.tenure.client");
  private static final Duration CLOSE = Duration.ofSeconds(1);
}
