package dev.tenure.client.internal;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/**
 * One session with one member: sends requests, hands each answer and every later notice to the request it is about, and
 * notices a silent member. Everything but the listener runs on the loop.
 */
final class Session {
  private static final Logger LOG = System.getLogger("dev.tenure.client");

  /** The idle time after which the client sends a ping, and how long the member may take to answer it. */
  private static final long QUIET = 2_000_000;

  private static final long SILENT = 2_000_000;

  /** A member that owes an answer and sends nothing at all for this long counts as gone. */
  private static final long OWED_MAX = 3_000_000;

  /** How often the session looks for that. */
  private static final long LOOK = 500_000;

  /** The number of characters from which nothing more is added to a message. */
  private static final int TOGETHER_CHARS = 128 * 1024;

  /** What a member says about one request. */
  sealed interface Response {
    /** The answer; its result is the field beside the id. */
    record Answer(JsonNode answer, long revision) implements Response {}

    /** A wait ended in a grant. */
    record Granted(JsonNode grant) implements Response {}

    /** A wait ended without a grant. */
    record WaitEnded(JsonNode ended) implements Response {}

    /** The session ended: the request may have happened. */
    record Gone() implements Response {}
  }

  /** Receives what a member says about one request. Runs on the loop. */
  interface Handler {
    void heard(Response response);
  }

  /** What concerns the whole client. Runs on the loop. */
  interface Events {
    void lockLost(JsonNode lost, JsonNode leasesEnded);

    void leaseEnded(JsonNode ended);

    void leaderMoved(Session session);

    void closed(Session session);
  }

  /** Where the leader is, according to a member; member 0 if it knows none. */
  record LeaderAddress(long member, String address) {
    static LeaderAddress of(JsonNode leader) {
      return new LeaderAddress(Json.decimal(leader, "member_id"), Json.string(leader, "address"));
    }
  }

  private static final class Pending {
    final Handler handler;
    final long asked;
    boolean answered;

    Pending(Handler handler, long asked) {
      this.handler = handler;
      this.asked = asked;
    }
  }

  final String address;
  private final Loop loop;
  private final Events events;
  private final Map<Long, Pending> pending = new HashMap<>();
  private final ArrayDeque<ObjectNode> outgoing = new ArrayDeque<>();
  private WebSocket socket;
  private CompletableFuture<JsonNode> welcome;
  private LeaderAddress leader = new LeaderAddress(0, "");
  private long member;
  private long greeted;
  private long nextId;
  private int unanswered;
  private int inFlightMax = 1_024;
  private int requestsMax = 64;
  private long newest = MachineClock.now();
  private long pinged;
  private boolean sending;
  private boolean over;
  private Loop.Timer look = () -> {};
  private JsonNode closing;

  Session(String address, Loop loop, Events events) {
    this.address = address;
    this.loop = loop;
    this.events = events;
  }

  /** Sends the hello, and completes with the welcome, or with what the member closed the session with. */
  CompletableFuture<JsonNode> greet(WebSocket opened, ObjectNode hello) {
    socket = opened;
    greeted = MachineClock.now();
    welcome = new CompletableFuture<>();
    if (over) {
      opened.abort();
      welcome.completeExceptionally(new IllegalStateException("closed"));
      return welcome;
    }
    send(hello);
    return welcome;
  }

  /** Takes the member, its leader and its limits from the welcome; from now on the session serves requests. */
  void welcomed(JsonNode it) {
    member = Json.decimal(it.path("header"), "member_id");
    if (it.has("leader")) {
      leader = LeaderAddress.of(it.path("leader"));
    }
    inFlightMax = Math.max(1, it.path("in_flight_max").asInt(inFlightMax));
    requestsMax = Math.max(1, it.path("requests_per_message_max").asInt(requestsMax));
    look = loop.after(LOOK, this::look);
  }

  long member() {
    return member;
  }

  boolean isOver() {
    return over;
  }

  /** Returns what the member gave as the reason of the end, if it did. */
  Optional<JsonNode> closing() {
    return Optional.ofNullable(closing);
  }

  boolean knowsLeader() {
    return leader.member != 0;
  }

  /** Returns where the leader is, if it is known and is another member. */
  Optional<LeaderAddress> leaderElsewhere() {
    boolean elsewhere = leader.member != 0 && leader.member != member && !leader.address.isEmpty();
    return elsewhere ? Optional.of(leader) : Optional.empty();
  }

  /** Sends a request under an id of its own, which is returned; 0 if the session is over. */
  long ask(ObjectNode request, Handler handler) {
    if (over) {
      return 0;
    }
    long id = ++nextId;
    pending.put(id, new Pending(handler, MachineClock.now()));
    outgoing.add(request.deepCopy().put("id", id));
    sendQueued();
    return id;
  }

  /** Returns whether the member tells this session of what happens to a lease: named in the hello, or granted here. */
  boolean covers(HeldLease lease) {
    return !over && (lease.grantedOn() == this || lease.grantedAt() <= greeted);
  }

  /** Ends the interest of a caller in its request. */
  void forget(long id) {
    Pending found = pending.get(id);
    if (found != null && found.answered) {
      pending.remove(id);
    } else if (found != null) {
      Pending deaf = new Pending(response -> {}, found.asked);
      pending.put(id, deaf);
    }
  }

  /** Ends the session if the member, which did not answer one request in time, says nothing else either. */
  void suspect() {
    if (MachineClock.now() - newest >= OWED_MAX) {
      close();
    }
  }

  void close() {
    if (over) {
      return;
    }
    over = true;
    LOG.log(Level.DEBUG, () -> "the session with " + address + " has ended");
    look.cancel();
    if (socket != null) {
      socket.abort();
    }
    if (welcome != null) {
      welcome.completeExceptionally(new IllegalStateException("the connection ended"));
    }
    List<Pending> all = new ArrayList<>(pending.values());
    pending.clear();
    outgoing.clear();
    events.closed(this);
    all.forEach(it -> it.handler.heard(new Response.Gone()));
  }

  private void look() {
    long now = MachineClock.now();
    long silent = now - newest;
    boolean owes = pending.values().stream().anyMatch(it -> !it.answered && now - it.asked >= OWED_MAX);
    if (silent >= OWED_MAX && owes || pinged != 0 && now - pinged >= SILENT && silent >= QUIET) {
      close();
      return;
    }
    if (silent >= QUIET && pinged == 0) {
      pinged = now;
      socket.sendPing(ByteBuffer.allocate(0));
    }
    look = loop.after(LOOK, this::look);
  }

  /** Sends what is queued, several requests per message, one message at a time. */
  private void sendQueued() {
    if (sending || over || outgoing.isEmpty()) {
      return;
    }
    ObjectNode message = Json.object();
    ArrayNode requests = message.putArray("requests");
    int chars = 0;
    while (!outgoing.isEmpty()
        && requests.size() < requestsMax
        && unanswered < inFlightMax
        && chars < TOGETHER_CHARS) {
      ObjectNode request = outgoing.poll();
      requests.add(request);
      unanswered++;
      chars += request.toString().length();
    }
    if (!requests.isEmpty()) {
      send(message);
    }
  }

  private void send(ObjectNode message) {
    sending = true;
    LOG.log(Level.TRACE, () -> address + " <- " + message);
    socket.sendText(Json.text(message), true).whenComplete((socket, error) -> loop.later(() -> {
      sending = false;
      if (error != null) {
        close();
      } else {
        sendQueued();
      }
    }));
  }

  private void heard(JsonNode message) {
    LOG.log(Level.TRACE, () -> address + " -> " + message);
    newest = MachineClock.now();
    pinged = 0;
    if (over) {
      return;
    }
    if (message.has("closing")) {
      closing = message.path("closing");
    }
    if (message.has("welcome") && !welcome.isDone()) {
      welcome.complete(message.path("welcome"));
    }
    if (message.has("leader")) {
      leader = LeaderAddress.of(message.path("leader"));
    }
    long revision = Json.decimal(message, "revision");
    for (JsonNode answer : message.path("answers")) {
      long own = Json.decimal(answer, "revision");
      tell(answer.path("id").asLong(), new Response.Answer(answer, own == 0 ? revision : own));
    }
    for (JsonNode grant : message.path("grants")) {
      tell(grant.path("id").asLong(), new Response.Granted(grant));
    }
    for (JsonNode ended : message.path("waits_ended")) {
      tell(ended.path("id").asLong(), new Response.WaitEnded(ended));
    }
    JsonNode ended = message.path("leases_ended");
    message.path("losses").forEach(lost -> events.lockLost(lost, ended));
    ended.forEach(events::leaseEnded);
    if (closing != null) {
      close();
    } else if (message.has("leader") && member != 0) {
      events.leaderMoved(this);
    }
    sendQueued();
  }

  private void tell(long id, Response response) {
    Pending found = pending.get(id);
    if (found == null) {
      return;
    }
    if (response instanceof Response.Answer it && !found.answered) {
      found.answered = true;
      unanswered--;
      // A request that does not queue is over with its answer.
      if (!it.answer.has("queued")) {
        pending.remove(id);
      }
    } else {
      pending.remove(id);
    }
    found.handler.heard(response);
  }

  /** Collects the parts of a message, and hands it to the loop. */
  WebSocket.Listener listener() {
    return new WebSocket.Listener() {
      private final StringBuilder parts = new StringBuilder();

      @Override
      public CompletionStage<?> onText(WebSocket from, CharSequence part, boolean last) {
        parts.append(part);
        if (last) {
          Optional<JsonNode> message = Json.parse(parts.toString());
          parts.setLength(0);
          loop.later(() -> message.ifPresentOrElse(Session.this::heard, Session.this::close));
        }
        from.request(1);
        return null;
      }

      @Override
      public CompletionStage<?> onPong(WebSocket from, ByteBuffer message) {
        loop.later(() -> {
          newest = MachineClock.now();
          pinged = 0;
        });
        from.request(1);
        return null;
      }

      @Override
      public CompletionStage<?> onClose(WebSocket from, int code, String reason) {
        loop.later(() -> {
          if (closing == null && code == 4401) {
            closing = Json.object().put("reason", "UNAUTHENTICATED").put("message", reason);
          }
          close();
        });
        return null;
      }

      @Override
      public void onError(WebSocket from, Throwable error) {
        loop.later(Session.this::close);
      }
    };
  }
}
