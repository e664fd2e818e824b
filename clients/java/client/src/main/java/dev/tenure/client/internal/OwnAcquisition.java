package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Cause;
import dev.tenure.client.Effect;
import dev.tenure.client.HeldLock;
import dev.tenure.client.Lost;
import dev.tenure.client.LostException;
import dev.tenure.client.TenureException;
import dev.tenure.client.UnavailableException;
import java.util.List;
import java.util.Optional;

/** Acquires with a new lease, which the same command grants. Runs on the loop. */
final class OwnAcquisition extends Acquisition implements StandingRequest.Outcome {
  private final LeaseTiming timing;
  private final long reach;

  /** The id of the lease that may have been granted although this client does not use it; 0 for none. */
  private long orphan;

  private boolean everSent;
  private boolean laterTurn;
  private long leaseId;

  /** The request under this lease id, and how the cluster recognises it when it is sent again. */
  private ObjectNode acquire;

  private Identity identity = Identity.HARMLESS;
  private PendingGrant pending;
  private long worthless;
  private HeldLease held;
  private StandingRequest standing;
  private int attempt;
  private Loop.Timer timer = () -> {};
  private Loop.Timer sessionLimit = () -> {};
  private Runnable leaveSessionQueue = () -> {};

  OwnAcquisition(Core core, AskOptions ask) {
    super(core, ask);
    this.timing = ask.timing(core.settings);
    long timeout = began + core.settings.timeoutMicros();
    this.reach = until == Long.MAX_VALUE ? timeout : Math.min(timeout, until + SLACK);
  }

  @Override
  void begin() {
    turn();
  }

  /** Asks with a new lease. */
  private void turn() {
    pending = new PendingGrant(timing);
    leaseId = Identity.leaseId();
    acquire = null;
    // A repetition of a request that was replaced by a newer one of its group must not replace that one.
    identity = ask.supersede == null ? Identity.HARMLESS : Identity.random();
    // An answer after this leaves too little of the window to be of use.
    worthless = MachineClock.now() + timing.windowMicros() * 3 / 4;
    send();
  }

  private void send() {
    if (isDone()) {
      return;
    }
    int mine = ++attempt;
    sessionLimit = core.loop.after(reach - MachineClock.now(), () -> {
      leaveSessionQueue.run();
      noSession();
    });
    leaveSessionQueue = core.connections.await(ask.isTry(), session -> {
      sessionLimit.cancel();
      if (isDone() || mine != attempt) {
        return;
      }
      if (session == null) {
        noSession();
      } else if (MachineClock.now() >= worthless) {
        anotherTurn();
      } else {
        sendOn(session, mine);
      }
    });
  }

  private void sendOn(Session session, int mine) {
    if (Plant.RETRY_WITHOUT_ID.isPlanted() && orphan != 0) {
      leaseId = Identity.leaseId();
    }
    ObjectNode request = Json.object();
    // What the cluster recognises must be identical.
    if (acquire == null || ask.supersede == null) {
      acquire = ask.acquire(left());
    }
    acquire
        .putObject("new_lease")
        .put("ttl_ms", timing.ttl().toMillis())
        .put("lease", Json.decimal(leaseId))
        .put("client", core.settings.name());
    request.set("acquire", acquire);
    identity.write(request);
    Loop.trace(request, span);
    // Read the clock before the send; a repetition under the same lease also counts from here.
    pending.sent(MachineClock.read());
    long[] id = {0};
    id[0] = session.ask(request, response -> {
      if (standing != null) {
        standing.heard(response);
      } else if (mine == attempt && !isDone()) {
        timer.cancel();
        heard(session, id[0], response);
      }
    });
    if (id[0] == 0) {
      timer = core.loop.after(PAUSE, this::send);
      return;
    }
    orphan = leaseId;
    everSent = true;
    timer = core.loop.after(Math.min(worthless, reach) - MachineClock.now(), () -> {
      session.forget(id[0]);
      session.suspect();
      anotherTurn();
    });
  }

  private void heard(Session session, long id, Session.Response response) {
    AskUpdate update = AskUpdate.of(response, ask);
    if (update instanceof AskUpdate.Granted it && it.lease().isObject()) {
      if (hold(it.lease())) {
        granted(it.locks(), it.revision());
      }
    } else if (update instanceof AskUpdate.Queued it && it.lease().isObject()) {
      tellQueued(it.ahead());
      if (hold(it.lease())) {
        // Whatever is left of the request ends with its lease, so it needs no numbers.
        standing = new StandingRequest(this, held, false, this);
        standing.start(session, id);
      }
    } else if (update instanceof AskUpdate.No it) {
      orphan = 0;
      fail(it.error());
    } else if (update instanceof AskUpdate.Again it) {
      long wait = Math.max(MachineClock.jittered(PAUSE), it.afterMicros());
      timer = core.loop.after(Math.min(wait, Math.max(0, reach - MachineClock.now())), this::send);
    } else if (update instanceof AskUpdate.Over && ask.supersede != null) {
      stop(new LostException(Lost.of(Cause.GONE)));
    } else {
      stop(Meaning.strange());
    }
  }

  /** Takes the lease that was granted. Returns false if the answer came too late to rely on it. */
  private boolean hold(JsonNode lease) {
    Optional<LeaseState> state = pending.granted(MachineClock.read());
    if (state.isEmpty()) {
      anotherTurn();
      return false;
    }
    held = core.register(Json.decimal(lease, "lease"), Json.decimal(lease, "created"), state.get());
    orphan = 0;
    return true;
  }

  /** The answer did not come in time to be of use: starts again with a new lease, within the time of any request. */
  private void anotherTurn() {
    attempt++;
    giveBackOrphan();
    if (MachineClock.now() >= reach || !core.spend()) {
      fail(outOfTime(Meaning.unknown(null, MachineClock.now() - began), Effect.UNKNOWN));
      return;
    }
    laterTurn = true;
    turn();
  }

  private void noSession() {
    attempt++;
    TenureException why = core.connections.noSession();
    boolean unknown = orphan != 0 || laterTurn && everSent && why instanceof UnavailableException;
    giveBackOrphan();
    if (unknown) {
      fail(outOfTime(Meaning.unknown(null, MachineClock.now() - began), Effect.UNKNOWN));
    } else {
      fail(why instanceof UnavailableException && isOutOfTime() ? outOfTime(why, Effect.NONE) : why);
    }
  }

  private boolean isOutOfTime() {
    return until != Long.MAX_VALUE && MachineClock.now() >= until;
  }

  private void giveBackOrphan() {
    if (orphan != 0) {
      core.giveBack(orphan);
      orphan = 0;
    }
  }

  @Override
  public void granted(List<HeldLock> locks, long revision) {
    try {
      succeed(Hold.of(held, true, locks, revision, null));
    } catch (TenureException error) {
      fail(error);
    }
  }

  @Override
  public void refused(TenureException why, boolean mayStand) {
    fail(why);
    core.background(held.revoke());
  }

  @Override
  void giveUp() {
    attempt++;
    timer.cancel();
    sessionLimit.cancel();
    leaveSessionQueue.run();
    giveBackOrphan();
    if (standing != null) {
      standing.close();
    }
    if (held != null) {
      core.background(held.revoke());
    }
  }
}
