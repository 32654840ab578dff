package halcyon.differential;

import java.util.Random;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.BloomType;

/** Column families with random attributes. */
final class Families {
  private static final BloomType[] BLOOMS = {BloomType.NONE, BloomType.ROW, BloomType.ROWCOL};
  private static final Compression.Algorithm[] COMPRESSIONS = {Compression.Algorithm.NONE, Compression.Algorithm.GZ, Compression.Algorithm.SNAPPY};

  private Families() {}

  /**
   * Whether the family has cells in the column without a name, where its markers are as well. HBase passes over such a marker behind a
   * version that is one too many if both are in a block that is not the last of its file. So these families have one block.
   */
  static boolean hasUnnamedColumn(byte[] name) {
    return name.length != 1 || name[0] == 'a';
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
    return family.build();
  }
}
