package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.tenure.client.RefusedException;
import dev.tenure.client.TenureException;
import dev.tenure.client.UnavailableException;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.net.ConnectException;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.net.http.WebSocketHandshakeException;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;

/**
 * Keeps two sessions: one with the leader, which it follows when it changes, and one with another member on standby, for
 * renewals and for the moment the first ends. Runs on the loop.
 */
final class Connections {
  private static final Logger LOG = System.getLogger("dev.tenure.client");

  /** The pause between attempts grows from the first value to the second. */
  private static final long PAUSE_MIN = 20_000;

  private static final long PAUSE_MAX = 1_000_000;

  /** How long the client does not retry a leader that it could not reach. */
  private static final long SHUN = 500_000;

  private static final long DIAL_MICROS = 2_000_000;
  private static final int KNOWN_MAX = 64;

  private final Core core;
  private final Loop loop;
  private final Transport transport;
  private final List<String> known = new ArrayList<>();
  private final Map<String, String> tried = new LinkedHashMap<>();
  private final List<Waiter> waiters = new ArrayList<>();
  private Session first;
  private Session second;
  private TenureException denied;
  private TenureException deniedInRound;
  private long failedRounds;
  private int turn = ThreadLocalRandom.current().nextInt(64);
  private long pause = PAUSE_MIN;
  private long shunnedUntil;
  private boolean busy;
  private boolean connected;
  private boolean outage;
  private boolean stopped;
  private Loop.Timer retry = () -> {};

  /** A caller that waits for a session; it gets null if members refuse the credentials or, at once, a round failed. */
  private record Waiter(boolean atOnce, long rounds, Consumer<Session> then) {}

  private interface Dialled {
    void done(Session session);
  }

  Connections(Core core, Transport transport) {
    this.core = core;
    this.loop = core.loop;
    this.transport = transport;
    this.known.addAll(core.settings.addresses());
  }

  /** Returns the session for requests, if there is one. */
  Session first() {
    return first == null || first.isOver() ? null : first;
  }

  /** Returns the open sessions, that with the leader first. */
  List<Session> open() {
    List<Session> open = new ArrayList<>(2);
    for (Session session : new Session[] {first, second}) {
      if (session != null && !session.isOver()) {
        open.add(session);
      }
    }
    return open;
  }

  /**
   * Hands a session to the caller as soon as there is one. Hands over null if members refuse the credentials and, with
   * {@code atOnce}, once no member could be connected to in a whole round of attempts. Returns what ends the wait.
   */
  Runnable await(boolean atOnce, Consumer<Session> then) {
    if (first() != null) {
      then.accept(first());
      return () -> {};
    }
    if (denied != null) {
      then.accept(null);
      return () -> {};
    }
    Waiter waiter = new Waiter(atOnce, failedRounds, then);
    waiters.add(waiter);
    return () -> waiters.remove(waiter);
  }

  /** Returns the error of a request for which there is no session. */
  TenureException noSession() {
    if (denied instanceof RefusedException it) {
      // A new one, whose stack is that of this request.
      return new RefusedException(
          it.reason(), it.getMessage(), null, it.next().orElse(""), it.retryAfter().orElse(Duration.ZERO));
    }
    List<String> each = new ArrayList<>();
    tried.forEach((address, outcome) -> each.add(address + " " + outcome));
    String which = each.isEmpty() ? "" : " (" + String.join(", ", each) + ")";
    return new UnavailableException("no member took the request; nothing happened" + which);
  }

  void start() {
    step();
  }

  void stop() {
    stopped = true;
    retry.cancel();
    open().forEach(Session::close);
  }

  /** Does what is to be done next; one thing at a time. */
  private void step() {
    if (busy || stopped) {
      return;
    }
    retry.cancel();
    first = first();
    second = second == null || second.isOver() ? null : second;
    if (first == null) {
      first = second;
      second = null;
    }
    if (first == null) {
      deniedInRound = null;
      dialAny(known.size());
      return;
    }
    serve();
    Optional<Session.LeaderAddress> leader = first.leaderElsewhere();
    if (leader.isPresent() && follow(leader.get())) {
      return;
    }
    if (second == null && known.size() > 1) {
      dialSecond(known.size());
      return;
    }
    if (refresh()) {
      return;
    }
    settled(leader.isEmpty());
  }

  /**
   * Opens the first session anew if a lease is left of whose losses no session hears: a member tells only of leases that
   * the hello named or that were granted on the session. Returns whether that is under way.
   */
  private boolean refresh() {
    List<Session> open = open();
    boolean heard = core.leases().stream().allMatch(lease -> open.stream().anyMatch(it -> it.covers(lease)));
    if (heard) {
      return false;
    }
    dial(first.address, session -> {
      if (session == null) {
        again(pause);
        return;
      }
      Session former = first;
      first = session;
      if (former != null) {
        former.close();
      }
      step();
    });
    return true;
  }

  private void settled(boolean all) {
    if (all) {
      pause = PAUSE_MIN;
    } else {
      again(Math.max(pause, SHUN));
    }
  }

  private void again(long micros) {
    pause = Math.min(pause * 2, PAUSE_MAX);
    retry.cancel();
    retry = loop.after(MachineClock.jittered(micros), this::step);
  }

  private void dialAny(int left) {
    if (left == 0) {
      failedRound();
      return;
    }
    String address = known.get(Math.floorMod(++turn, known.size()));
    dial(address, session -> {
      if (session == null) {
        dialAny(left - 1);
        return;
      }
      first = session;
      denied = null;
      if (outage) {
        LOG.log(Level.INFO, "connected again to {0}", address);
      }
      outage = false;
      connected = true;
      learnMembers(session.address);
      step();
    });
  }

  private void failedRound() {
    failedRounds++;
    denied = deniedInRound;
    if (denied != null) {
      core.leases().forEach(lease -> lease.act(LeaseState::credentialsRefused));
    }
    // An outage is logged once.
    if (connected) {
      connected = false;
      outage = true;
      LOG.log(Level.WARNING, "no member can be reached; trying again: {0}", tried);
    }
    List<Waiter> over = new ArrayList<>();
    for (Waiter waiter : waiters) {
      if (denied != null || waiter.atOnce && waiter.rounds != failedRounds) {
        over.add(waiter);
      }
    }
    waiters.removeAll(over);
    over.forEach(waiter -> waiter.then.accept(null));
    again(pause);
  }

  private void serve() {
    List<Waiter> served = new ArrayList<>(waiters);
    waiters.clear();
    for (Waiter waiter : served) {
      if (first() != null) {
        waiter.then.accept(first());
      } else {
        waiters.add(waiter);
      }
    }
  }

  /** Makes the session with the leader the first one. Returns whether that is under way. */
  private boolean follow(Session.LeaderAddress leader) {
    if (second != null && second.member() == leader.member()) {
      Session standby = first;
      first = second;
      second = standby;
      step();
      return true;
    }
    if (MachineClock.now() < shunnedUntil) {
      return false;
    }
    dial(leader.address(), session -> {
      if (session == null) {
        // A follower forwards requests, so nothing has to wait until this succeeds.
        shunnedUntil = MachineClock.now() + SHUN;
      } else {
        learn(leader.address());
        Session former = second;
        second = first;
        first = session;
        if (former != null) {
          former.close();
        }
      }
      step();
    });
    return true;
  }

  private void dialSecond(int left) {
    List<String> others = known.stream().filter(it -> first != null && !it.equals(first.address)).toList();
    if (left == 0 || others.isEmpty() || first() == null) {
      if (first() == null) {
        step();
      } else {
        again(pause);
      }
      return;
    }
    String address = others.get(Math.floorMod(++turn, others.size()));
    dial(address, session -> {
      if (session == null) {
        dialSecond(left - 1);
      } else if (first() != null && session.member() == first.member()) {
        // The same member under another address is no standby.
        known.remove(address);
        session.close();
        step();
      } else {
        second = session;
        step();
      }
    });
  }

  /** Opens a session with the member at an address; null if that fails. */
  private void dial(String address, Dialled then) {
    busy = true;
    Session session = new Session(address, loop, new SessionEvents());
    boolean[] over = {false};
    Loop.Timer[] limit = new Loop.Timer[1];
    Consumer<String> failed = why -> {
      if (!over[0]) {
        over[0] = true;
        limit[0].cancel();
        session.close();
        tried.put(address, why);
        LOG.log(Level.DEBUG, "dialled {0}: {1}", address, why);
        busy = false;
        then.done(null);
      }
    };
    limit[0] = loop.after(DIAL_MICROS, () -> failed.accept("timed out"));
    try {
      transport
          .webSocket(address)
          .buildAsync(transport.sessionUri(address), session.listener())
          .whenComplete((socket, error) -> loop.later(() -> {
            if (over[0] || stopped) {
              if (socket != null) {
                socket.abort();
              }
            } else if (error != null) {
              failed.accept(word(address, error));
            } else {
              session.greet(socket, core.hello()).whenComplete((welcome, end) -> {
                if (over[0]) {
                  return;
                }
                String refused = welcome == null ? refusal(session) : core.recognise(welcome);
                if (refused != null) {
                  failed.accept(refused);
                  return;
                }
                over[0] = true;
                limit[0].cancel();
                session.welcomed(welcome);
                tried.put(address, "connected");
                busy = false;
                then.done(session);
              });
            }
          }));
    } catch (IOException | GeneralSecurityException | IllegalArgumentException error) {
      String why = error.getMessage() == null ? error.toString() : error.getMessage();
      if (error instanceof IOException && !core.settings.credentials().isNone()) {
        deniedInRound = new RefusedException("UNAUTHENTICATED", why, null);
      }
      loop.later(() -> failed.accept(why));
    }
  }

  private String refusal(Session session) {
    Optional<JsonNode> closing = session.closing();
    closing.ifPresent(this::refusedBy);
    return closing.map(it -> Json.string(it, "message")).orElse("the connection ended");
  }

  private void refusedBy(JsonNode error) {
    String reason = Json.string(error, "reason");
    if (reason.equals("RESTORED")) {
      core.restored();
    }
    if (List.of("UNAUTHENTICATED", "PERMISSION_DENIED", "FORBIDDEN").contains(reason)) {
      deniedInRound = Meaning.refusal(error);
    }
  }

  /** Returns why no connection could be made, in a few words. */
  private String word(String address, Throwable thrown) {
    Throwable error = thrown instanceof CompletionException && thrown.getCause() != null ? thrown.getCause() : thrown;
    if (error instanceof WebSocketHandshakeException it) {
      int status = it.getResponse().statusCode();
      if (status == 401 || status == 403) {
        String reason = status == 401 ? "UNAUTHENTICATED" : "PERMISSION_DENIED";
        deniedInRound = new RefusedException(reason, address + " refuses the credentials (" + reason + ")", null);
      }
      return "answered " + status;
    }
    if (error instanceof HttpTimeoutException) {
      return "timed out";
    }
    if (error instanceof ConnectException) {
      return "refused";
    }
    return error.getMessage() == null ? error.toString() : error.getMessage();
  }

  /** Asks a member for the addresses of the others. Without an answer the client knows what it was told. */
  private void learnMembers(String address) {
    try {
      var request = transport.request(address, "/v1/cluster/members").timeout(Duration.ofSeconds(2)).build();
      transport
          .client()
          .sendAsync(request, HttpResponse.BodyHandlers.ofString())
          .whenComplete((response, error) -> loop.later(() -> {
            if (error == null && response.statusCode() == 200 && !stopped) {
              int before = known.size();
              Json.parse(response.body()).ifPresent(it -> {
                it.path("members").forEach(member -> learn(Json.string(member, "client_address")));
              });
              if (known.size() > before) {
                step();
              }
            }
          }));
    } catch (IOException | GeneralSecurityException error) {
      LOG.log(Level.DEBUG, "cannot ask for the members", error);
    }
  }

  private void learn(String address) {
    boolean nowhere = address.isEmpty() || address.equals("-");
    if (!nowhere && known.size() < KNOWN_MAX && !known.contains(address)) {
      known.add(address);
    }
  }

  private final class SessionEvents implements Session.Events {
    @Override
    public void lockLost(JsonNode lost, JsonNode leasesEnded) {
      core.lockLost(lost, leasesEnded);
    }

    @Override
    public void leaseEnded(JsonNode ended) {
      core.leaseEnded(ended);
    }

    @Override
    public void leaderMoved(Session session) {
      if (session == first) {
        loop.later(Connections.this::step);
      }
    }

    @Override
    public void closed(Session session) {
      if (session == first || session == second) {
        loop.later(Connections.this::step);
      }
    }
  }

  /** Builds the hello: who the client is, which cluster it knows, and which leases it wants to hear about. */
  static ObjectNode hello(String client, JsonNode known, List<String> leases) {
    ObjectNode message = Json.object();
    ObjectNode hello = message.putObject("hello").put("client", client);
    if (known != null) {
      hello.put("cluster_id", Json.string(known.path("header"), "cluster_id"));
      hello.put("epoch", known.path("epoch").asLong());
      hello.put("incarnation", Json.string(known, "incarnation"));
    }
    if (!leases.isEmpty()) {
      ArrayNode names = message.putObject("resume").putArray("leases");
      leases.forEach(names::add);
    }
    return message;
  }
}
