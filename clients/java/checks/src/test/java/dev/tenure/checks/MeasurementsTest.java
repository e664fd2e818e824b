package dev.tenure.checks;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tenure.client.Client;
import dev.tenure.client.Guard;
import dev.tenure.client.Lease;
import dev.tenure.client.Server;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What 1,000 idle leases cost in one process, and how many locks per second one client takes and gives back. */
@Timeout(180)
class MeasurementsTest {
  private static final int LEASES = 1_000;

  @Test
  void aThousandIdleLeasesAreCheap() throws Exception {
    try (Server server = Server.start(1);
        Client client = server.client("idle")) {
      List<Guard> guards = take(client, "idle/");
      long heapHeld = heap();
      Duration cpu = cpu();
      Duration measured = Duration.ofSeconds(20);
      Thread.sleep(measured.toMillis());
      Duration used = cpu().minus(cpu);
      double share = 100.0 * used.toNanos() / measured.toNanos();
      guards.forEach(Guard::check);
      long rss = rss();
      CompletableFuture<?>[] given = guards.stream().map(Guard::releaseAsync).toArray(CompletableFuture[]::new);
      CompletableFuture.allOf(given).get(60, TimeUnit.SECONDS);
      given = null;
      guards = List.of();
      // What is free after they were given back is what they took.
      long heap = heapHeld - heap();
      System.out.printf(
          Locale.ROOT, "measured java idle_leases=%d heap_kib_each=%.1f rss_mib=%d threads=%d cpu_percent=%.2f%n",
          LEASES, heap / 1024.0 / LEASES, rss, Thread.activeCount(), share);
      assertTrue(heap < 20L * 1024 * LEASES, "20 KiB for a lease are more than enough: " + heap);
      assertTrue(share < 25, "a quarter of a core is more than enough: " + share);
    }
  }

  private static List<Guard> take(Client client, String prefix) throws Exception {
    List<CompletableFuture<Guard>> asked = new ArrayList<>();
    for (int at = 0; at < LEASES; at++) {
      asked.add(client.lockAsync(prefix + at));
    }
    List<Guard> guards = new ArrayList<>();
    for (CompletableFuture<Guard> each : asked) {
      guards.add(each.get(60, TimeUnit.SECONDS));
    }
    return guards;
  }

  @Test
  void locksAreTakenAndGivenBack() throws Exception {
    try (Server server = Server.start(1);
        Client client = server.client("cycles")) {
      double one = cycles(client, 1);
      double many = cycles(client, 64);
      System.out.printf(Locale.ROOT, "measured java cycles_per_s_1=%.0f cycles_per_s_64=%.0f%n", one, many);
      assertTrue(many > one);
    }
  }

  /** Takes and gives back locks under one lease, from so many threads, for a few seconds. */
  private static double cycles(Client client, int threads) throws InterruptedException {
    AtomicLong count = new AtomicLong();
    Duration warm = Duration.ofSeconds(2);
    Duration measured = Duration.ofSeconds(3);
    try (Lease lease = client.lease(Duration.ofSeconds(15))) {
      long began = System.nanoTime();
      long from = began + warm.toNanos();
      long until = from + measured.toNanos();
      List<Thread> all = new ArrayList<>();
      for (int at = 0; at < threads; at++) {
        String lock = "cycle/" + at;
        Thread thread = new Thread(() -> {
          try {
            while (System.nanoTime() < until) {
              lease.lock(lock).release();
              if (System.nanoTime() > from) {
                count.incrementAndGet();
              }
            }
          } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
          }
        });
        all.add(thread);
        thread.start();
      }
      for (Thread thread : all) {
        thread.join();
      }
    }
    return count.get() / (measured.toNanos() / 1e9);
  }

  private static long heap() {
    for (int at = 0; at < 3; at++) {
      System.gc();
    }
    return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
  }

  private static Duration cpu() {
    return ProcessHandle.current().info().totalCpuDuration().orElseThrow();
  }

  private static long rss() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) {
        return Long.parseLong(line.replaceAll("\\D", "")) / 1024;
      }
    }
    throw new IOException("no VmRSS");
  }
}
