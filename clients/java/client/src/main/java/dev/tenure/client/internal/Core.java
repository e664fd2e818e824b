package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Cause;
import dev.tenure.client.ClosedException;
import dev.tenure.client.Lost;
import dev.tenure.client.LostException;
import dev.tenure.client.StillHeldException;
import dev.tenure.client.UnknownOutcomeException;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** What a client, its leases and its requests share. */
public final class Core {
  private static final Logger LOG = System.getLogger("dev.tenure.client");

  /** How many leases one message may name. */
  private static final int RESUME_MAX = 4_096;

  /**
   * The retry budget, in tenths of a retry. Each answer earns one tenth back, so that retries add at most a tenth to the
   * load of a cluster in trouble.
   */
  private static final int BUDGET = 1_000;

  private static final int RETRY_COST = 10;

  public final Settings settings;
  final Loop loop;
  final Connections connections;
  final Transport transport;
  final Renewals renewals = new Renewals(this);
  private final Watchdog watchdog = new Watchdog(this);

  /** Runs functions of the caller, which may block. */
  public final Executor callbacks;

  private final Map<Long, HeldLease> leases = new ConcurrentHashMap<>();
  private final AtomicInteger budget = new AtomicInteger(BUDGET);

  // What has to end before the client is closed:
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private int unfinished;
  private volatile boolean closing;
  private volatile boolean stopped;
  private final Set<Runnable> onClosing = new LinkedHashSet<>();

  /** What callers wait for: if the client stops first, they are told. */
  private final Set<CompletableFuture<?>> awaited = ConcurrentHashMap.newKeySet();

  /** The welcome by which the client knows its cluster. */
  private volatile JsonNode cluster;

  private Core(Settings settings) throws IOException, GeneralSecurityException {
    this.settings = settings;
    this.loop = new Loop("tenure-loop", settings.traceparent());
    this.transport = new Transport(settings);
    this.connections = new Connections(this, transport);
    AtomicInteger made = new AtomicInteger();
    ThreadPoolExecutor pool =
        new ThreadPoolExecutor(0, Integer.MAX_VALUE, 5, TimeUnit.SECONDS, new SynchronousQueue<>(), task -> {
          Thread thread = new Thread(task, "tenure-callback-" + made.incrementAndGet());
          thread.setDaemon(true);
          return thread;
        });
    this.callbacks = pool;
  }

  /** Starts the client's threads. */
  public static Core start(Settings settings) throws IOException, GeneralSecurityException {
    Core core = new Core(settings);
    core.watchdog.start();
    core.loop.run(core.connections::start);
    return core;
  }

  /** Completes when a member is connected; with the error if members refuse the credentials, or the time is over. */
  public CompletableFuture<Void> connected() {
    CompletableFuture<Void> done = new CompletableFuture<>();
    loop.run(() -> {
      Loop.Timer[] limit = new Loop.Timer[1];
      Runnable[] leave = {() -> {}};
      limit[0] = loop.after(settings.timeoutMicros(), () -> {
        leave[0].run();
        done.completeExceptionally(connections.noSession());
      });
      leave[0] = connections.await(false, session -> {
        limit[0].cancel();
        Futures.pass(null, session == null ? connections.noSession() : null, done);
      });
    });
    return done;
  }

  /** Returns a result for a caller. If the client stops before it is there, it becomes an error. */
  <T> CompletableFuture<T> awaited() {
    CompletableFuture<T> result = new CompletableFuture<>();
    awaited.add(result);
    result.whenComplete((value, error) -> awaited.remove(result));
    if (stopped) {
      result.completeExceptionally(new ClosedException());
    }
    return result;
  }

  Collection<HeldLease> leases() {
    return leases.values();
  }

  private List<String> leaseIds() {
    return leases.values().stream().limit(RESUME_MAX).map(HeldLease::name).toList();
  }

  /** Keeps a granted lease from now on. */
  HeldLease register(long id, long created, LeaseState state) {
    HeldLease held = new HeldLease(this, id, created, state, connections.first());
    leases.put(id, held);
    watchdog.lookBefore(state.lostAt());
    renewals.lookBefore(state.due());
    return held;
  }

  void forget(HeldLease lease) {
    leases.remove(lease.id, lease);
    report();
  }

  ObjectNode hello() {
    return Connections.hello(settings.name(), cluster, leaseIds());
  }

  /** Checks that a member belongs to our cluster; returns why not. A cluster restored since has ended our leases. */
  String recognise(JsonNode welcome) {
    JsonNode known = cluster;
    if (known != null) {
      if (Json.decimal(known.path("header"), "cluster_id") != Json.decimal(welcome.path("header"), "cluster_id")) {
        return "belongs to another cluster";
      }
      if (known.path("epoch").asLong() > welcome.path("epoch").asLong()) {
        return "belongs to the cluster as it was before it was restored";
      }
      boolean same = known.path("epoch").equals(welcome.path("epoch"))
          && known.path("incarnation").equals(welcome.path("incarnation"));
      if (!same) {
        ClockReading now = MachineClock.read();
        leases.values().forEach(lease -> lease.act(it -> it.ended(Lost.of(Cause.GONE), now)));
      }
    }
    cluster = welcome;
    return null;
  }

  /** The cluster was restored from a backup: every lease of before is gone, and the client begins anew. */
  void restored() {
    ClockReading now = MachineClock.read();
    leases.values().forEach(lease -> lease.act(it -> it.ended(Lost.of(Cause.GONE), now)));
    cluster = null;
  }

  void lockLost(JsonNode lost, JsonNode leasesEnded) {
    HeldLease lease = leases.get(Json.decimal(lost, "lease"));
    if (lease == null) {
      return;
    }
    // The cluster sends the reason of a revoke once, with the lease, and not with each of its locks.
    String reason = Json.string(lost, "reason");
    for (JsonNode ended : leasesEnded) {
      if (reason.isEmpty() && ended.path("lease").equals(lost.path("lease"))) {
        reason = Json.string(ended, "reason");
      }
    }
    Lost loss = Lost.told(Cause.ofWire(Json.string(lost, "cause")), Json.string(lost, "by"), reason);
    lease.act(it -> it.taken(Json.decimal(lost, "token"), loss));
  }

  void leaseEnded(JsonNode ended) {
    HeldLease lease = leases.get(Json.decimal(ended, "lease"));
    if (lease != null) {
      Cause cause = Cause.ofWire(Json.string(ended, "cause"));
      Lost loss = Lost.told(cause, Json.string(ended, "by"), Json.string(ended, "reason"));
      lease.act(it -> it.ended(loss, MachineClock.read()));
    }
  }

  /** Sends a request and completes with its result. */
  public CompletableFuture<JsonNode> request(ObjectNode command, String result, Identity identity) {
    CompletableFuture<JsonNode> done = awaited();
    loop.run(() -> Call.start(this, command, result, identity).done().whenComplete((reply, error) -> {
      if (reply != null && reply.result().isObject()) {
        ((ObjectNode) reply.result()).put("_revision", Json.decimal(reply.revision()));
      }
      Futures.pass(reply == null ? null : reply.result(), error, done);
    }));
    return done;
  }

  /** Asks for a lease. */
  public CompletableFuture<HeldLease> grantLease(AskOptions ask) {
    LeaseTiming timing = ask.timing(settings);
    CompletableFuture<HeldLease> done = awaited();
    loop.run(() -> {
      long id = Identity.leaseId();
      ObjectNode command = Json.object();
      command
          .putObject("grant_lease")
          .put("ttl_ms", timing.ttl().toMillis())
          .put("lease", Json.decimal(id))
          .put("client", settings.name());
      PendingGrant pending = new PendingGrant(timing);
      // Granting by id is harmless to repeat; the lease time counts from the first send.
      pending.sent(MachineClock.read());
      long within = Math.min(settings.timeoutMicros(), timing.windowMicros());
      Call.start(this, command, "lease_granted", Identity.HARMLESS, within).done().whenComplete((reply, error) -> {
        if (error != null) {
          if (error instanceof UnknownOutcomeException) {
            giveBack(id);
          }
          done.completeExceptionally(error);
          return;
        }
        Optional<LeaseState> state = pending.granted(MachineClock.read());
        if (state.isEmpty()) {
          giveBack(id);
          done.completeExceptionally(new LostException(Lost.of(Cause.CLUSTER_UNREACHABLE)));
        } else {
          done.complete(register(id, Json.decimal(reply.result(), "created"), state.get()));
        }
      });
    });
    return done;
  }

  /** Ends a lease under which no work runs. */
  public CompletableFuture<Void> revoke(HeldLease lease) {
    CompletableFuture<Void> done = awaited();
    background(done);
    loop.run(() -> lease.revoke().whenComplete((nothing, error) -> Futures.pass(null, error, done)));
    return done;
  }

  Call revokeCall(long id) {
    ObjectNode command = Json.object();
    command.putObject("revoke").put("lease", Json.decimal(id));
    return Call.start(this, command, "revoked", Identity.HARMLESS);
  }

  /** Revokes a lease that may have been granted and that no caller uses. If that fails, it expires. */
  void giveBack(long id) {
    background(Futures.then(revokeCall(id).done(), error -> null));
  }

  /** Counts something that has to end before the client is closed. */
  void background(CompletableFuture<Void> task) {
    count(1);
    task.whenComplete((nothing, error) -> {
      if (error != null && !(error instanceof LostException)) {
        LOG.log(Level.WARNING, "cannot give a lock back; its lease runs out: {0}", error.getMessage());
      }
      count(-1);
    });
  }

  private void count(int more) {
    lock.lock();
    try {
      unfinished += more;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private void report() {
    count(0);
  }

  void earn() {
    budget.updateAndGet(it -> Math.min(BUDGET, it + 1));
  }

  /** Takes one retry from the budget, if any is left. */
  boolean spend() {
    return budget.getAndUpdate(it -> it >= RETRY_COST ? it - RETRY_COST : it) >= RETRY_COST;
  }

  public boolean isClosing() {
    return closing;
  }

  /** Runs when the client closes. Returns what ends the subscription. On the loop. */
  Runnable onClosing(Runnable then) {
    onClosing.add(then);
    return () -> onClosing.remove(then);
  }

  /**
   * Takes no more requests for locks, ends every lease without work, and waits until nothing is held or unfinished.
   * Then the connections end and the threads stop; also if the time is over first.
   */
  public void close(Duration within) throws InterruptedException {
    closing = true;
    loop.run(() -> {
      new ArrayList<>(onClosing).forEach(Runnable::run);
      leases.values().forEach(lease -> {
        if (lease.with(LeaseState::isIdle)) {
          background(Futures.then(lease.revoke(), error -> null));
        }
      });
    });
    CompletableFuture<Void> queued = new CompletableFuture<>();
    loop.later(() -> queued.complete(null));
    long deadline = System.nanoTime() + within.toNanos();
    lock.lock();
    try {
      while (!queued.isDone() && !stopped || unfinished > 0 || !leases.isEmpty()) {
        long left = deadline - System.nanoTime();
        if (left <= 0) {
          break;
        }
        changed.await(queued.isDone() ? left : Math.min(left, 1_000_000), TimeUnit.NANOSECONDS);
      }
    } finally {
      lock.unlock();
    }
    List<String> used = leases.values().stream().flatMap(it -> it.with(LeaseState::inUse).stream()).toList();
    boolean settled = used.isEmpty() && unfinished == 0;
    if (used.isEmpty()) {
      stop();
    }
    if (!used.isEmpty()) {
      throw new StillHeldException(used);
    }
    if (!settled) {
      throw Meaning.unknown(null, within.toNanos() / 1_000);
    }
  }

  /** Ends the connections and the threads at once. Work that still runs under a lock is told to stop. */
  public void stop() {
    closing = true;
    stopped = true;
    loop.run(() -> {
      ClockReading now = MachineClock.read();
      Lost closed = Lost.told(Cause.REVOKED, settings.name(), "the client was closed");
      leases.values().forEach(lease -> lease.act(it -> it.ended(closed, now)));
      watchdog.stop();
      connections.stop();
      loop.stop();
      List.copyOf(awaited).forEach(it -> it.completeExceptionally(
          new UnknownOutcomeException("UNKNOWN_OUTCOME", "the client was closed before an answer came", null)));
    });
  }
}
