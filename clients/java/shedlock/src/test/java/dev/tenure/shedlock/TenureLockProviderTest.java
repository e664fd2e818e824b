package dev.tenure.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tenure.client.Client;
import dev.tenure.client.Server;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** ShedLock's own executor over the provider, against a real cluster. */
@Timeout(60)
class TenureLockProviderTest {
  private Server server;
  private Client ana;
  private Client ben;

  @BeforeEach
  void start() throws InterruptedException {
    server = Server.start(1);
    ana = server.client("ana");
    ben = server.client("ben");
  }

  @AfterEach
  void stop() {
    server.thaw();
    ana.close();
    ben.close();
    server.close();
  }

  private static LockConfiguration configuration(Duration atMost, Duration atLeast) {
    return new LockConfiguration(Instant.now(), "report", atMost, atLeast);
  }

  @Test
  void oneProcessRunsTheTaskAndTheOtherSkipsIt() throws Throwable {
    LockingTaskExecutor here = new DefaultLockingTaskExecutor(new TenureLockProvider(ana));
    LockingTaskExecutor there = new DefaultLockingTaskExecutor(new TenureLockProvider(ben));
    LockConfiguration minute = configuration(Duration.ofMinutes(1), Duration.ZERO);
    boolean[] ran = {false, false};
    here.executeWithLock((LockingTaskExecutor.Task) () -> {
      ran[0] = true;
      // In a thread of its own: ShedLock lets a thread that has the lock pass.
      Thread other = new Thread(() -> there.executeWithLock((Runnable) () -> ran[1] = true, minute));
      other.start();
      other.join();
    }, minute);
    assertTrue(ran[0]);
    assertFalse(ran[1], "the lock was held");
    there.executeWithLock((Runnable) () -> ran[1] = true, minute);
    assertTrue(ran[1], "the lock was given back");
    assertTrue(ana.show("shedlock/report").isEmpty());
  }

  @Test
  void theLockIsHeldForLongerThanItsTtlAndAtLeastAsLongAsItSays() throws Exception {
    TenureLockProvider provider = new TenureLockProvider(ana);
    SimpleLock lock = provider.lock(configuration(Duration.ofSeconds(20), Duration.ofSeconds(3))).orElseThrow();
    lock.unlock();
    Thread.sleep(1_500);
    assertEquals(Optional.empty(), new TenureLockProvider(ben).lock(configuration(Duration.ofMinutes(1), Duration.ZERO)));
    Thread.sleep(2_000);
    new TenureLockProvider(ben).lock(configuration(Duration.ofMinutes(1), Duration.ZERO)).orElseThrow().unlock();
  }

  @Test
  void afterLockAtMostForTheTaskIsInterrupted() throws Exception {
    SimpleLock lock = new TenureLockProvider(ana)
        .lock(configuration(Duration.ofMillis(2_500), Duration.ZERO))
        .orElseThrow();
    assertThrows(InterruptedException.class, () -> Thread.sleep(20_000));
    lock.unlock();
    assertFalse(Thread.currentThread().isInterrupted());
    ben.tryLock("shedlock/report", Duration.ofSeconds(5)).orElseThrow().close();
  }

  @Test
  void aLostLockInterruptsTheTaskBeforeAnotherMayStart() throws Exception {
    SimpleLock lock = new TenureLockProvider(ana)
        .lock(configuration(Duration.ofSeconds(4), Duration.ZERO))
        .orElseThrow();
    server.freeze();
    long began = System.nanoTime();
    assertThrows(InterruptedException.class, () -> Thread.sleep(20_000));
    assertTrue(System.nanoTime() - began < Duration.ofMillis(1_200).toNanos(), "half of the ttl of 2 s");
    server.thaw();
    lock.unlock();
    assertFalse(Thread.currentThread().isInterrupted());
  }

  @Test
  void aClusterThatCannotBeReachedIsAnErrorAndNotAHeldLock() {
    TenureLockProvider provider = new TenureLockProvider(ana);
    server.kill();
    LockConfiguration minute = configuration(Duration.ofMinutes(1), Duration.ZERO);
    assertThrows(LockException.class, () -> provider.lock(minute));
  }
}
