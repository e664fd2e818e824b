package dev.tenure.client;

import com.fasterxml.jackson.databind.JsonNode;
import dev.tenure.client.internal.Json;
import dev.tenure.client.internal.Meaning;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * A lock as the cluster shows it.
 *
 * @param name its name
 * @param holders the grants in force
 * @param waiting how many wait
 */
public record LockInfo(String name, List<Holder> holders, int waiting) {
  static LockInfo of(JsonNode it) {
    List<Holder> holders = new ArrayList<>();
    it.path("holders").forEach(holder -> holders.add(Meaning.holder(holder)));
    return new LockInfo(Json.string(it, "lock"), List.copyOf(holders), it.path("waiting").asInt());
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
