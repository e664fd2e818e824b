package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Cause;
import dev.tenure.client.Effect;
import dev.tenure.client.HeldLock;
import dev.tenure.client.Lost;
import dev.tenure.client.LostException;
import dev.tenure.client.RefusedException;
import dev.tenure.client.TenureException;
import dev.tenure.client.UnavailableException;
import java.util.List;

/**
 * A request that stands in the cluster under a lease, across as many sessions as it takes. It queues in the cluster, not
 * on a session: when a session ends, it is repeated on the next one under the same number, and the cluster answers with
 * its current state. Runs on the loop.
 */
final class StandingRequest {
  /** How long members must refuse the credentials before a request that waits is given up. */
  private static final long DENIED = 1_000_000;

  /** What becomes of the request. */
  interface Outcome {
    void granted(List<HeldLock> locks, long revision);

    /** It was not granted; {@code mayStand} says whether it may still stand in the cluster. */
    void refused(TenureException why, boolean mayStand);
  }

  private final Acquisition owner;
  private final Core core;
  private final HeldLease held;
  private final AskOptions ask;
  private final boolean numbered;
  private final Outcome outcome;
  private HeldLease.Seq seq;
  private long seqWait;
  private boolean sent;
  private boolean queued;
  private boolean over;
  private long deniedSince;
  private long pause = Acquisition.PAUSE;
  private int attempt;
  private Session session;
  private long id;
  private Runnable leaveSessionQueue = () -> {};
  private Runnable unlisten = () -> {};
  private Loop.Timer limit = () -> {};
  private Loop.Timer nap = () -> {};

  StandingRequest(Acquisition owner, HeldLease held, boolean numbered, Outcome outcome) {
    this.owner = owner;
    this.core = owner.core;
    this.held = held;
    this.ask = owner.ask;
    this.numbered = numbered;
    this.outcome = outcome;
  }

  /** Starts; the request was queued already on this session under this id, if there is one. */
  void start(Session already, long alreadyId) {
    unlisten = held.lost().onFire(lost -> core.loop.later(() -> finish(new LostException(lost))));
    if (owner.until != Long.MAX_VALUE) {
      limit = core.loop.after(owner.until + Acquisition.SLACK - MachineClock.now(), this::outOfTime);
    }
    if (already != null) {
      sent = true;
      queued = true;
      session = already;
      id = alreadyId;
    } else {
      send();
    }
  }

  /** Returns what listens to the session on which the request was already queued. */
  void heard(Session.Response response) {
    heard(attempt, response);
  }

  /** Stops listening; the number is given up, so that the cluster rejects the request if it still arrives. */
  void close() {
    if (over) {
      return;
    }
    over = true;
    attempt++;
    limit.cancel();
    nap.cancel();
    leaveSessionQueue.run();
    unlisten.run();
    if (session != null) {
      session.forget(id);
    }
    dropNumber();
  }

  private void dropNumber() {
    if (seq != null) {
      seq.close();
      seq = null;
    }
  }

  private void send() {
    if (over) {
      return;
    }
    int mine = ++attempt;
    leaveSessionQueue = core.connections.await(ask.isTry() && !sent, on -> {
      if (over || mine != attempt) {
        return;
      }
      if (on == null) {
        noSession();
      } else if (numbered && seq == null) {
        held.seq(number -> {
          if (over || mine != attempt) {
            number.close();
            return;
          }
          seq = number;
          seqWait = owner.left();
          sendOn(on, mine);
        });
      } else {
        sendOn(on, mine);
      }
    });
  }

  private void sendOn(Session on, int mine) {
    ObjectNode request = Json.object();
    // A repetition under the same number must be identical.
    ObjectNode acquire = ask.acquire(numbered ? seqWait : owner.left());
    // A request that was queued and replaced by a newer one of its group must not replace that one.
    if (queued && ask.supersede != null) {
      acquire.put("resume", true);
    }
    request.set("acquire", acquire.put("lease", held.name()));
    if (numbered) {
      new Identity.Numbered(seq).write(request);
    }
    Loop.trace(request, owner.span);
    session = on;
    id = on.ask(request, response -> heard(mine, response));
    if (id == 0) {
      again(0);
      return;
    }
    sent = true;
    deniedSince = 0;
  }

  private void noSession() {
    TenureException why = core.connections.noSession();
    if (ask.isTry() && !sent) {
      finish(why);
      return;
    }
    // Credentials that are being replaced may be right a moment later.
    long now = MachineClock.now();
    deniedSince = deniedSince == 0 ? now : deniedSince;
    if (why instanceof RefusedException && now - deniedSince >= DENIED) {
      finish(why, sent);
      return;
    }
    nap = core.loop.after(Acquisition.PAUSE, this::send);
  }

  private void again(long after) {
    if (Plant.RETRY_WITHOUT_ID.isPlanted()) {
      dropNumber();
    }
    nap = core.loop.after(Math.max(MachineClock.jittered(pause), after), this::send);
    pause = Math.min(pause * 2, Acquisition.PAUSE_MAX);
  }

  private void heard(int mine, Session.Response response) {
    if (over || mine != attempt) {
      return;
    }
    AskUpdate update = AskUpdate.of(response, ask);
    if (update instanceof AskUpdate.Granted it) {
      close();
      outcome.granted(it.locks(), it.revision());
    } else if (update instanceof AskUpdate.Queued it) {
      queued = true;
      // Keeping the number for the whole wait would block all later ones. A repetition under another number keeps the
      // place in the queue.
      dropNumber();
      pause = Acquisition.PAUSE;
      owner.tellQueued(it.ahead());
    } else if (update instanceof AskUpdate.No it) {
      finish(it.error());
    } else if (update instanceof AskUpdate.Over) {
      finish(owner.until == Long.MAX_VALUE ? new LostException(Lost.of(Cause.GONE)) : timedOut());
    } else if (update instanceof AskUpdate.Again it) {
      again(it.afterMicros());
    }
  }

  private void outOfTime() {
    if (!sent) {
      finish(core.connections.noSession());
    } else if (queued) {
      finish(timedOut(), true);
    } else {
      TenureException unknown = Meaning.unknown(null, MachineClock.now() - owner.began);
      finish(owner.outOfTime(unknown, Effect.UNKNOWN), true);
    }
  }

  private TenureException timedOut() {
    String locks = String.join(", ", ask.locks);
    String message = "timed out waiting for lock `" + locks + "`; the queue position is gone";
    return owner.outOfTime(new RefusedException("WAIT_TIMEOUT", message, null), Effect.NONE);
  }

  private void finish(TenureException why) {
    // A refused request is over; after any other error it may still stand in the cluster.
    finish(why, !(why instanceof RefusedException || why instanceof UnavailableException));
  }

  private void finish(TenureException why, boolean mayStand) {
    if (!over) {
      close();
      outcome.refused(why, mayStand);
    }
  }
}
