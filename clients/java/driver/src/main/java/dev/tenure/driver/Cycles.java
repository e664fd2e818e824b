package dev.tenure.driver;

import dev.tenure.client.Client;
import dev.tenure.client.Lease;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;

/** Measures how often workers take and release locks of their own under one lease. */
final class Cycles {
  private Cycles() {}

  static long run(Client client, int workers, Duration length) throws Exception {
    AtomicLong count = new AtomicLong();
    ExecutorService threads = Executors.newFixedThreadPool(workers);
    try (Lease lease = client.lease(Duration.ofSeconds(15))) {
      long end = System.nanoTime() + length.toNanos();
      List<Callable<Void>> all = new ArrayList<>();
      for (int worker = 0; worker < workers; worker++) {
        String lock = "cycles/" + worker;
        all.add(() -> {
          while (System.nanoTime() - end < 0) {
            lease.lock(lock).release();
            count.incrementAndGet();
          }
          return null;
        });
      }
      for (Future<Void> each : threads.invokeAll(all)) {
        each.get();
      }
    } finally {
      threads.shutdown();
    }
    return count.get();
  }
}
