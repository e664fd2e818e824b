package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.Json;
import dev.tenure.client.internal.Meaning;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * A lock as the cluster shows it.
 *
 * @param name its name
 * @param holders the grants in force
 * @param waiting how many wait
 * @param slots how many slots a semaphore has; nothing for any other lock
 * @param sized whether an operator set that number, so that the numbers in requests do not count
 * @param created the revision since which it exists
 * @param modified the revision at which its holders or metadata last changed
 */
public record LockInfo(
    String name, List<Holder> holders, int waiting, OptionalInt slots, boolean sized, long created, long modified) {
  static LockInfo of(JsonNode it) {
    List<Holder> holders = new ArrayList<>();
    it.path("holders").forEach(holder -> holders.add(Meaning.holder(holder)));
    return new LockInfo(
        Json.string(it, "lock"),
        List.copyOf(holders),
        it.path("waiting").asInt(),
        Json.number(it, "slots"),
        it.path("sized").asBoolean(),
        Json.decimal(it, "created"),
        Json.decimal(it, "modified"));
  }

  /**
   * Returns the first holder.
   *
   * @return the holder, if the lock is held
   */
  public Optional<Holder> holder() {
    return holders.stream().findFirst();
  }
}
