package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.Cause;
import dev.tenure.client.Lost;
import dev.tenure.client.RefusedException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Renews all leases of a client with few messages. When one is due, every lease that will be due soon goes with it. The
 * first attempt goes to the leader; while it is unanswered, further ones go to the other member and to the leader in
 * turn. Runs on the loop.
 */
final class Renewals {
  /** How many leases stand in one message. */
  private static final int TOGETHER = 1_024;

  private final Core core;
  private Loop.Timer timer = () -> {};
  private long next = Long.MAX_VALUE;
  private int turn;

  private record Part(HeldLease lease, long number) {}

  Renewals(Core core) {
    this.core = core;
  }

  /** Looks at this time, if the next look would be later. */
  void lookBefore(long at) {
    if (at < next) {
      schedule(at);
    }
  }

  private void schedule(long at) {
    timer.cancel();
    next = at;
    timer = core.loop.after(Math.max(1_000, at - MachineClock.now()), this::beat);
  }

  private void beat() {
    next = Long.MAX_VALUE;
    Collection<HeldLease> leases = core.leases();
    boolean due = false;
    for (HeldLease lease : leases) {
      ClockReading now = MachineClock.read();
      due |= lease.with(it -> it.poll(now));
    }
    if (due) {
      send(leases);
    }
    long earliest = Long.MAX_VALUE;
    for (HeldLease lease : leases) {
      ClockReading now = MachineClock.read();
      earliest = Math.min(earliest, lease.with(it -> it.check(now).isPresent() ? Long.MAX_VALUE : it.due()));
    }
    if (earliest < Long.MAX_VALUE) {
      schedule(earliest);
    }
  }

  private void send(Collection<HeldLease> leases) {
    boolean again = leases.stream().anyMatch(lease -> lease.with(LeaseState::isRetrying));
    turn = again ? turn + 1 : 0;
    List<Session> open = core.connections.open();
    Session session = open.isEmpty() ? null : open.get(turn % open.size());
    List<Part> parts = new ArrayList<>();
    for (HeldLease lease : leases) {
      // Read the clock before anything is sent: the renewed lease counts from here.
      ClockReading now = MachineClock.read();
      long number = lease.with(it -> it.isSoon(now) ? it.renewing(now) : 0L);
      if (number != 0) {
        parts.add(new Part(lease, number));
      }
    }
    for (int from = 0; from < parts.size(); from += TOGETHER) {
      List<Part> some = parts.subList(from, Math.min(parts.size(), from + TOGETHER));
      if (session == null) {
        failed(some);
      } else {
        send(session, some);
      }
    }
  }

  private void send(Session session, List<Part> parts) {
    long window = Long.MAX_VALUE;
    ObjectNode request = Json.object();
    ArrayNode names = request.putObject("renew").putArray("leases");
    for (Part part : parts) {
      names.add(part.lease.name());
      window = Math.min(window, part.lease.with(it -> it.timing().windowMicros()));
    }
    request.put("deadline_ms", Math.max(1, window / 1_000));
    boolean[] over = {false};
    Loop.Timer[] limit = new Loop.Timer[1];
    long id = session.ask(request, response -> {
      if (!over[0]) {
        over[0] = true;
        limit[0].cancel();
        heard(response, parts);
      }
    });
    // Later attempts run independently. This one can still prove something until its window is over.
    limit[0] = core.loop.after(window, () -> {
      if (!over[0]) {
        over[0] = true;
        session.forget(id);
        session.suspect();
        failed(parts);
      }
    });
    if (id == 0) {
      over[0] = true;
      limit[0].cancel();
      failed(parts);
    }
  }

  private void heard(Session.Response response, List<Part> parts) {
    JsonNode renewed = response instanceof Session.Response.Answer it ? it.answer().path("renewed") : null;
    if (renewed == null || !renewed.isArray() || renewed.size() != parts.size()) {
      failed(parts);
      return;
    }
    for (int at = 0; at < parts.size(); at++) {
      Part part = parts.get(at);
      JsonNode each = renewed.get(at);
      long ttl = each.path("ttl_ms").asLong(0);
      long changed = Json.decimal(each, "changed");
      ClockReading now = MachineClock.read();
      LeaseState.AckEffect effect = part.lease.with(it -> it.renewed(part.number, ttl, changed, now));
      if (effect == LeaseState.AckEffect.READ_HOLDINGS) {
        readHoldings(part.lease);
      }
      lookBefore(part.lease.with(it -> it.check(now).isPresent() ? Long.MAX_VALUE : it.due()));
    }
  }

  private static void failed(List<Part> parts) {
    parts.forEach(part -> part.lease.act(it -> it.notRenewed(part.number)));
  }

  /** Reads what a lease holds, because it lost something that the client may not have been told of. */
  private void readHoldings(HeldLease lease) {
    ObjectNode command = Json.object();
    command.putObject("get_lease").put("name", lease.name());
    long window = lease.with(it -> it.timing().windowMicros());
    Call.start(core, command, "lease", Identity.HARMLESS, window).done().whenComplete((reply, error) -> {
      ClockReading now = MachineClock.read();
      boolean unknown = error instanceof RefusedException it && it.reason().equals("LEASE_NOT_FOUND");
      if (unknown || reply != null && !reply.result().has("lease")) {
        lease.act(it -> it.ended(Lost.of(Cause.GONE), now));
      } else if (reply != null) {
        JsonNode view = reply.result().path("lease");
        Set<Long> holds = new HashSet<>();
        view.path("holds").forEach(it -> holds.add(Json.decimal(it, "token")));
        lease.act(it -> it.holdings(reply.revision(), Json.decimal(view, "changed"), holds, now));
      }
      // After any other error the next acknowledgement triggers another read.
    });
  }
}
