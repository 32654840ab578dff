package org.apache.hadoop.hbase.regionserver;

import halcyon.coprocessor.Frame;
import java.io.IOException;
import java.util.Collection;
import java.util.OptionalLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.MemoryCompactionPolicy;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;

/**
 * A family of a region of the server, as hooks get it: what it is called and what it keeps. It is an HStore because RegionCoprocessorHost wants
 * one, and has neither files nor a memstore; methods that need them throw and name themselves.
 */
final class ServedStore extends HStore {
  private final ServedRegion region;
  private final ColumnFamilyDescriptor family;

  ServedStore(ServedRegion region, ColumnFamilyDescriptor family) throws IOException {
    super(region, plain(family), plain(region.configuration()), false);
    this.region = region;
    this.family = family;
  }

  /** Without keys of encryption, and what else a store would look for. */
  private static ColumnFamilyDescriptor plain(ColumnFamilyDescriptor family) {
    return ColumnFamilyDescriptorBuilder.newBuilder(family).setValue("ENCRYPTION", (String) null)
      .setValue("ENCRYPTION_KEY", (String) null).setInMemoryCompaction(MemoryCompactionPolicy.NONE).setMobEnabled(false).build();
  }

  private static Configuration plain(Configuration of) {
    Configuration plain = new Configuration(of);
    plain.setBoolean("hbase.hregion.memstore.mslab.enabled", false);
    plain.set("hbase.store.file-tracker.impl", "DEFAULT");
    plain.set("hbase.hstore.engine.class", DefaultStoreEngine.class.getName());
    return plain;
  }

  /** What a family is to keep, if it is not what this store keeps. */
  void addChanges(ScanInfo wanted, Frame frame) {
    ScanInfo usual = getScanInfo();
    if (wanted.getMaxVersions() == usual.getMaxVersions() && wanted.getMinVersions() == usual.getMinVersions()
      && wanted.getTtl() == usual.getTtl() && wanted.getKeepDeletedCells() == usual.getKeepDeletedCells()
      && wanted.getTimeToPurgeDeletes() == usual.getTimeToPurgeDeletes()) return;
    Frame.FamilyOptions options = new Frame.FamilyOptions();
    options.family = family.getName();
    options.maxVersions = Math.max(1, wanted.getMaxVersions());
    options.minVersions = Math.max(0, wanted.getMinVersions());
    options.ttlMs = Math.max(0, wanted.getTtl());
    options.purgeDeletesAfterMs = Math.max(0, wanted.getTimeToPurgeDeletes());
    options.keepDeleted = wanted.getKeepDeletedCells().name();
    frame.options.add(options);
  }

  /** What the family keeps for a read. */
  void addChanges(Scan scan, Frame frame) throws IOException {
    addChanges(region.getCoprocessorHost().preStoreScannerOpen(this, scan), frame);
  }

  HStoreFile file(Path path) throws IOException {
    Configuration configuration = region.configuration();
    FileSystem files = path.getFileSystem(configuration);
    FileStatus status = files.getFileStatus(path);
    StoreFileInfo info = new StoreFileInfo(configuration, files, status.getModificationTime(), path, status.getLen(), null, null, true);
    return new HStoreFile(info, family.getBloomFilterType(), CacheConfig.DISABLED);
  }

  private static UnsupportedOperationException unsupported(String method) {
    return new UnsupportedOperationException("Store." + method + " in the JVM of coprocessors");
  }

  @Override
  public ColumnFamilyDescriptor getColumnFamilyDescriptor() {
    return family == null ? super.getColumnFamilyDescriptor() : family; // null: in the constructor of the superclass
  }

  @Override
  public long getSmallestReadPoint() {
    return region.getSmallestReadPoint();
  }

  @Override
  public Collection<HStoreFile> getStorefiles() {
    throw unsupported("getStorefiles");
  }

  @Override
  public Collection<HStoreFile> getCompactedFiles() {
    throw unsupported("getCompactedFiles");
  }

  @Override
  public long timeOfOldestEdit() {
    throw unsupported("timeOfOldestEdit");
  }

  @Override
  public boolean shouldPerformMajorCompaction() {
    throw unsupported("shouldPerformMajorCompaction");
  }

  @Override
  public boolean needsCompaction() {
    throw unsupported("needsCompaction");
  }

  @Override
  public int getCompactPriority() {
    throw unsupported("getCompactPriority");
  }

  @Override
  public boolean hasReferences() {
    throw unsupported("hasReferences");
  }

  @Override
  public MemStoreSize getMemStoreSize() {
    throw unsupported("getMemStoreSize");
  }

  @Override
  public MemStoreSize getFlushableSize() {
    throw unsupported("getFlushableSize");
  }

  @Override
  public MemStoreSize getSnapshotSize() {
    throw unsupported("getSnapshotSize");
  }

  @Override
  public OptionalLong getMaxSequenceId() {
    throw unsupported("getMaxSequenceId");
  }

  @Override
  public long getSize() {
    throw unsupported("getSize");
  }

  @Override
  public int getStorefilesCount() {
    throw unsupported("getStorefilesCount");
  }

  @Override
  public long getStorefilesSize() {
    throw unsupported("getStorefilesSize");
  }

  @Override
  public long getStoreSizeUncompressed() {
    throw unsupported("getStoreSizeUncompressed");
  }

  @Override
  public void refreshStoreFiles() {
    throw unsupported("refreshStoreFiles");
  }
}
