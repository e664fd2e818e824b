package dev.tenure.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A road to a member that can swallow what the member answers, and break. */
final class Proxy implements AutoCloseable {
  private final ServerSocket listener;
  private final String target;
  private final List<Socket> sockets = new CopyOnWriteArrayList<>();
  private volatile boolean swallows;

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
      start(() -> pass(client.getInputStream(), member.getOutputStream(), false));
      start(() -> pass(member.getInputStream(), client.getOutputStream(), true));
    }
  }

  private void pass(InputStream from, OutputStream to, boolean answers) throws IOException {
    byte[] buffer = new byte[8 * 1024];
    for (int read = from.read(buffer); read >= 0; read = from.read(buffer)) {
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
