package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Cause;
import dev.tenure.client.HeldLock;
import dev.tenure.client.Lost;
import dev.tenure.client.LostException;
import dev.tenure.client.RefusedException;
import dev.tenure.client.TenureException;
import dev.tenure.client.UnavailableException;
import java.time.Duration;
import java.util.List;

/** Waits until a shared hold has become an exclusive one. Runs on the loop. */
public final class Upgrade extends Acquisition implements StandingRequest.Outcome {
  private final Hold hold;
  private final HeldLock old;
  private StandingRequest standing;

  private Upgrade(Hold hold, AskOptions ask) {
    super(hold.core(), ask);
    this.hold = hold;
    this.old = hold.locks().get(0);
  }

  /** Starts the upgrade of the only lock of a hold; {@code wait} is null for no limit. */
  public static Upgrade start(Hold hold, Duration wait) {
    AskOptions ask = new AskOptions(List.of(hold.locks().get(0).name()));
    ask.wait = wait;
    ask.upgrade = true;
    ask.check();
    return run(new Upgrade(hold, ask));
  }

  @Override
  void begin() {
    standing = new StandingRequest(this, hold.lease(), true, this);
    standing.start(null, 0);
  }

  @Override
  public void granted(List<HeldLock> locks, long revision) {
    locks.stream().filter(it -> it.name().equals(old.name())).forEach(it -> hold.regrant(0, it.token(), revision));
    succeed(hold);
  }

  @Override
  public void refused(TenureException why, boolean mayStand) {
    if (why instanceof LostException) {
      hold.doubt();
      fail(why);
    } else if (mayStand) {
      leave(why);
    } else {
      fail(why);
    }
  }

  /** The caller does not wait any more: the lease leaves the queue. If the upgrade came first, it counts. */
  @Override
  public void abandon() {
    core.loop.run(() -> stop(new java.util.concurrent.CancellationException("the upgrade was given up")));
  }

  @Override
  void giveUp() {
    standing.close();
    leave(null);
  }

  /** Leaves the queue. The answer tells whether the upgrade came first: then the token is another one. */
  private void leave(TenureException why) {
    ObjectNode command = Json.object();
    command.putObject("leave").put("lock", old.name()).put("lease", hold.lease().name());
    var left = hold.lease().numbered(command, "left");
    core.background(Futures.then(left, error -> null));
    left.whenComplete((reply, error) -> {
      if (error != null) {
        hold.doubt();
        end(certain(error));
        return;
      }
      for (JsonNode it : reply.result().path("held")) {
        if (Json.string(it, "lock").equals(old.name()) && Json.decimal(it, "token") != old.token()) {
          hold.regrant(0, Json.decimal(it, "token"), reply.revision());
          end(null);
          return;
        }
      }
      end(why);
    });
  }

  /** What the failure of a leave says about the upgrade. */
  private RuntimeException certain(Throwable error) {
    if (error instanceof RefusedException) {
      // The lease holds nothing of the lock any more.
      return new LostException(Lost.of(Cause.GONE));
    }
    boolean unknown = error instanceof UnavailableException || !(error instanceof RuntimeException);
    return unknown ? Meaning.unknown(null, MachineClock.now() - began) : (RuntimeException) error;
  }

  private void end(RuntimeException why) {
    if (isDone()) {
      return;
    }
    if (why == null) {
      succeed(hold);
    } else {
      fail(why);
    }
  }
}
