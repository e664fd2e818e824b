package dev.tenure.client;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;

/** A road to a member that can swallow what the member answers, answer searches of the past itself, and break. */
final class Proxy implements AutoCloseable {
  private final ServerSocket listener;
  private final String target;
  private final List<Socket> sockets = new CopyOnWriteArrayList<>();
  private final List<ByteArrayOutputStream> asked = new CopyOnWriteArrayList<>();
  private final Queue<Answer> answers = new ConcurrentLinkedQueue<>();
  private final List<String> searches = new CopyOnWriteArrayList<>();
  private final List<Long> searchedAt = new CopyOnWriteArrayList<>();
  private volatile boolean swallows;

  /** An answer to a search: its status, its headers, each with its end, and its body. */
  record Answer(int status, String headers, String body) {}

  Proxy(String target) throws IOException {
    this.target = target;
    this.listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    start(this::accept);
  }

  String address() {
    return "127.0.0.1:" + listener.getLocalPort();
  }

  /** From now on no byte of the member arrives. */
  void swallowAnswers() {
    swallows = true;
  }

  /** Answers the next searches of the past with these pages. */
  void answerSearches(String... pages) {
    for (String page : pages) {
      answerSearches(new Answer(200, "", page));
    }
  }

  /** Answers the next searches of the past with these, and all further ones with the last. */
  void answerSearches(Answer... answers) {
    this.answers.addAll(List.of(answers));
  }

  /** Returns when each of these searches came, by {@link System#nanoTime}. */
  List<Long> searchedAt() {
    return searchedAt;
  }

  /** Returns the queries of the searches that were answered here. */
  List<String> searches() {
    return searches;
  }

  /** Answers a request if it is a search and there is a page for it. */
  private boolean answers(String request, OutputStream to) throws IOException {
    String path = request.startsWith("GET ") ? request.split(" ", 3)[1] : "";
    Answer answer = path.contains("history") ? next() : null;
    if (answer == null) {
      return false;
    }
    searchedAt.add(System.nanoTime());
    searches.add(path.substring(path.indexOf('?') + 1));
    String head = "HTTP/1.1 " + answer.status() + " -\r\nConnection: close\r\n" + answer.headers()
        + "Content-Length: " + answer.body().length() + "\r\n\r\n";
    to.write((head + answer.body()).getBytes(StandardCharsets.ISO_8859_1));
    to.close();
    return true;
  }

  private Answer next() {
    return answers.size() > 1 ? answers.poll() : answers.peek();
  }

  /** Returns the messages that clients have sent so far on WebSockets. */
  List<String> asked() {
    List<String> messages = new ArrayList<>();
    for (ByteArrayOutputStream connection : asked) {
      byte[] bytes;
      synchronized (connection) {
        bytes = connection.toByteArray();
      }
      int upgraded = new String(bytes, StandardCharsets.ISO_8859_1).indexOf("\r\n\r\n");
      ByteBuffer frames = ByteBuffer.wrap(bytes);
      frames.position(upgraded < 0 ? bytes.length : upgraded + 4);
      readFrames(frames, messages);
    }
    return messages;
  }

  /** Reads the frames of RFC 6455 that are there as a whole. A client masks what it sends. */
  private static void readFrames(ByteBuffer frames, List<String> to) {
    while (frames.remaining() >= 14) {
      frames.get();
      int size = frames.get() & 0x7f;
      long length = size == 127 ? frames.getLong() : size == 126 ? frames.getShort() & 0xffff : size;
      byte[] mask = new byte[4];
      frames.get(mask);
      if (frames.remaining() < length) {
        return;
      }
      byte[] text = new byte[(int) length];
      frames.get(text);
      for (int at = 0; at < text.length; at++) {
        text[at] ^= mask[at % 4];
      }
      to.add(new String(text, StandardCharsets.UTF_8));
    }
  }

  /** Ends all connections; new ones work again. */
  void cut() throws IOException {
    for (Socket socket : sockets) {
      if (!socket.isClosed()) {
        socket.setSoLinger(true, 0);
        socket.close();
      }
    }
    sockets.clear();
    swallows = false;
  }

  private void accept() throws IOException {
    while (!listener.isClosed()) {
      Socket client = listener.accept();
      Socket member = new Socket();
      member.connect(new InetSocketAddress("127.0.0.1", Integer.parseInt(target.substring(target.indexOf(':') + 1))));
      sockets.add(client);
      sockets.add(member);
      start(() -> pass(client.getInputStream(), member.getOutputStream(), client.getOutputStream()));
      start(() -> pass(member.getInputStream(), client.getOutputStream(), null));
    }
  }

  /** Passes bytes on: those of a client if there is a way back to it, else those of a member. */
  private void pass(InputStream from, OutputStream to, OutputStream back) throws IOException {
    boolean answers = back == null;
    byte[] buffer = new byte[8 * 1024];
    ByteArrayOutputStream copy = new ByteArrayOutputStream();
    if (!answers) {
      asked.add(copy);
    }
    for (int read = from.read(buffer); read >= 0; read = from.read(buffer)) {
      if (!answers && answers(new String(buffer, 0, read, StandardCharsets.ISO_8859_1), back)) {
        return;
      }
      if (!answers) {
        synchronized (copy) {
          copy.write(buffer, 0, read);
        }
      }
      if (!(answers && swallows)) {
        to.write(buffer, 0, read);
        to.flush();
      }
    }
    to.close();
  }

  private interface Task {
    void run() throws IOException;
  }

  private static void start(Task task) {
    Thread thread = new Thread(() -> {
      try {
        task.run();
      } catch (IOException broken) {
        // The connection was cut, or the proxy closed.
        return;
      }
    });
    thread.setDaemon(true);
    thread.start();
  }

  @Override
  public void close() throws IOException {
    cut();
    listener.close();
  }
}
