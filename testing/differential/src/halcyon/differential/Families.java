package halcyon.differential;

import java.util.Arrays;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.MemoryCompactionPolicy;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;

/** Column families with random attributes. */
final class Families {
  private static final BloomType[] BLOOMS = {BloomType.NONE, BloomType.ROW, BloomType.ROWCOL};
  private static final Compression.Algorithm[] COMPRESSIONS = {Compression.Algorithm.NONE, Compression.Algorithm.GZ, Compression.Algorithm.SNAPPY};

  /** The name of families whose large values are in MOB files. A family stays one: HBase reads no value of one that is none any more. */
  static final byte[] MOB = Domain.bytes("m");
  static final String MOB_FAMILY = "a MOB family";
  static final String IN_MEMORY_FLUSHES = "in-memory flushes";
  static final String COMPACTION_MIN = "hbase.hstore.compaction.min";
  private static final String COMPACTION_MAX = "hbase.hstore.compaction.max";
  private static final String POLICY = "hbase.hstore.defaultengine.compactionpolicy.class";
  private static final int[] MOB_THRESHOLDS = {0, 5, 200, 2_000};

  private Families() {}

  /**
   * Whether the family has cells in the column without a name, where its markers are as well. HBase passes over such a marker behind a
   * version that is one too many if both are in a block that is not the last of its file. So these families have one block.
   */
  static boolean hasUnnamedColumn(byte[] name) {
    return name.length != 1 || name[0] == 'a';
  }

  /** Minor compactions of the oldest files, so many at a time, whatever the sizes: HBase and Halcyon write files of other sizes. */
  private static void takesOldest(ColumnFamilyDescriptorBuilder family, int min, int max) {
    family.setConfiguration(POLICY, "org.apache.hadoop.hbase.regionserver.compactions.RatioBasedCompactionPolicy");
    family.setConfiguration(COMPACTION_MIN, Integer.toString(min)).setConfiguration(COMPACTION_MAX, Integer.toString(max));
  }

  /** What the report counts steps on a table with this family by. */
  static Set<String> features(ColumnFamilyDescriptor family) {
    Set<String> features = new TreeSet<>();
    if (family.isMobEnabled()) features.add(MOB_FAMILY);
    if (family.getInMemoryCompaction() == MemoryCompactionPolicy.BASIC) features.add(IN_MEMORY_FLUSHES);
    return features;
  }

  static ColumnFamilyDescriptor random(byte[] name, Random random) {
    ColumnFamilyDescriptorBuilder family = ColumnFamilyDescriptorBuilder.newBuilder(name);
    int versions = switch (random.nextInt(4)) {
      case 0 -> 1;
      case 1 -> 2;
      case 2 -> 5;
      default -> 1000;
    };
    family.setMaxVersions(versions);
    if (random.nextInt(3) == 0) {
      family.setTimeToLive(random.nextBoolean() ? 43_200 : 604_800);
      if (versions > 1 && random.nextBoolean()) family.setMinVersions(Math.min(versions - 1, 1 + random.nextInt(2)));
    }
    KeepDeletedCells keep = KeepDeletedCells.values()[random.nextInt(3)];
    boolean isLegal = keep != KeepDeletedCells.TTL || random.nextBoolean();
    family.setKeepDeletedCells(isLegal ? keep : KeepDeletedCells.FALSE);
    family.setBloomFilterType(BLOOMS[random.nextInt(BLOOMS.length)]);
    family.setDataBlockEncoding(DataBlockEncoding.values()[random.nextInt(DataBlockEncoding.values().length)]);
    family.setCompressionType(COMPRESSIONS[random.nextInt(COMPRESSIONS.length)]);
    if (random.nextInt(4) == 0 && Boolean.getBoolean("nvb")) family.setNewVersionBehavior(true);
    if (random.nextInt(5) == 0) family.setInMemory(true);
    if (random.nextInt(3) == 0 && !hasUnnamedColumn(name)) family.setBlocksize(random.nextBoolean() ? 1024 : 2048);
    if (random.nextInt(5) == 0) family.setBlockCacheEnabled(false);
    if (Arrays.equals(name, MOB)) family.setMobEnabled(true).setMobThreshold(MOB_THRESHOLDS[random.nextInt(MOB_THRESHOLDS.length)]);
    // What is hidden stays there. The other policies leave it out when they come to it, and raw scans show that.
    if (random.nextInt(7) == 0) family.setInMemoryCompaction(MemoryCompactionPolicy.BASIC);
    if (random.nextInt(3) > 0) takesOldest(family, 2 + random.nextInt(2), 3);
    return family.build();
  }
}
