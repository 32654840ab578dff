package halcyon.conformance;

import java.io.IOException;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.ClusterMetrics.Option;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.MetaTableAccessor;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Consistency;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.io.HFileLink;
import org.apache.hadoop.hbase.master.RegionState;
import org.apache.hadoop.hbase.master.assignment.AssignmentManager;
import org.apache.hadoop.hbase.master.assignment.RegionStateNode;
import org.apache.hadoop.hbase.master.assignment.RegionStateStore;
import org.apache.hadoop.hbase.master.assignment.RegionStates;
import org.apache.hadoop.hbase.procedure2.Procedure;
import org.apache.hadoop.hbase.procedure2.ProcedureUtil;
import org.apache.hadoop.hbase.regionserver.HRegion;
import org.apache.hadoop.hbase.regionserver.HStore;
import org.apache.hadoop.hbase.regionserver.HStoreFile;
import org.apache.hadoop.hbase.regionserver.StoreFileInfo;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.shaded.protobuf.generated.MasterProtos;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ProcedureProtos;
import org.apache.hadoop.hbase.shaded.protobuf.generated.ProcedureProtos.ProcedureState;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.CommonFSUtils;
import org.apache.hbase.thirdparty.com.google.protobuf.ServiceException;
import org.junit.AssumptionViolatedException;
import org.mockito.Mockito;

/** Regions, stores and files of the external server, with what the client API, hbase:meta and directories tell of them. */
final class Regions {
  /** Tests compare regions that they have got at different times. */
  private static final Map<HBaseTestingUtility, Map<RegionInfo, HRegion>> REGIONS = new IdentityHashMap<>();

  private Regions() {
  }

  /** A region, with what the client API and its directory tell of it. */
  static synchronized HRegion region(HBaseTestingUtility u, RegionInfo region) {
    return REGIONS.computeIfAbsent(u, key -> new HashMap<>()).computeIfAbsent(region, r -> newRegion(u, r));
  }

  private static HRegion newRegion(HBaseTestingUtility u, RegionInfo r) {
    return Mockito.mock(HRegion.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "getRegionInfo" -> {
          return r;
        }
        case "getTableDescriptor" -> {
          return u.getAdmin().getDescriptor(r.getTable());
        }
        case "getStores" -> {
          List<HStore> stores = new ArrayList<>();
          for (byte[] family : u.getAdmin().getDescriptor(r.getTable()).getColumnFamilyNames()) {
            stores.add(store(u, r, family));
          }
          return stores;
        }
        case "getStore" -> {
          return store(u, r, i.getArgument(0));
        }
        case "get" -> {
          if (i.getRawArguments().length != 1) {
            External.internals("HRegion.get");
          }
          Get get = new Get((Get) i.getArgument(0)).setReplicaId(r.getReplicaId()).setConsistency(Consistency.TIMELINE);
          try (Table t = u.getConnection().getTable(r.getTable())) {
            return t.get(get);
          }
        }
        case "put" -> {
          try (Table t = u.getConnection().getTable(r.getTable())) {
            t.put((Put) i.getArgument(0));
          }
          return null;
        }
        case "getWAL" -> {
          return Wals.of(u, serverOf(u, r));
        }
        case "getCompactionState" -> {
          return u.getAdmin().getCompactionStateForRegion(r.getRegionName());
        }
        case "getStoreFileList" -> {
          List<String> names = new ArrayList<>();
          for (byte[] family : (byte[][]) i.getRawArguments()[0]) {
            storeFiles(u, r, family).forEach(f -> names.add(f.getPath().toString()));
          }
          return names;
        }
        case "waitForFlushesAndCompactions", "waitForFlushes", "waitForCompactions" -> {
          return i.getMethod().getReturnType() == boolean.class ? true : null;
        }
        case "flush", "flushcache" -> {
          u.getAdmin().flush(r.getTable()); // a flush of the region by a client would also compact it
          return null;
        }
        case "compact" -> {
          compact(u, r, i.getArgument(0));
          return null;
        }
        case "toString" -> {
          return r.getRegionNameAsString();
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: HRegion." + i.getMethod().getName());
        }
      }
    }));
  }

  /** Returns when the table is compacted, as the mini cluster does. */
  static void compact(HBaseTestingUtility u, TableName t, boolean major) throws IOException {
    Admin admin = u.getAdmin();
    long before = admin.getLastMajorCompactionTimestamp(t);
    if (major) {
      admin.majorCompact(t);
    } else {
      admin.compact(t);
    }
    // without a file there is nothing to compact, and no timestamp either
    for (int i = 0; major && i < 30 && admin.getLastMajorCompactionTimestamp(t) <= before; i++) {
      External.pause();
    }
    for (int idle = 0; idle < 3;) {
      External.pause();
      idle = admin.getCompactionState(t) == CompactionState.NONE ? idle + 1 : 0;
    }
  }

  private static void compact(HBaseTestingUtility u, RegionInfo r, boolean major) throws IOException {
    if (!major) {
      External.internals("HRegion.compact of what the server selects");
    }
    long before = u.getAdmin().getLastMajorCompactionTimestampForRegion(r.getRegionName());
    u.getAdmin().majorCompactRegion(r.getRegionName());
    for (int i = 0; i < 300; i++) {
      if (u.getAdmin().getLastMajorCompactionTimestampForRegion(r.getRegionName()) > before
        && u.getAdmin().getCompactionStateForRegion(r.getRegionName()) == CompactionState.NONE) {
        return;
      }
      External.pause();
    }
    throw new AssertionError(r + " was not compacted");
  }

  /** A store, with what its directory tells of it. */
  private static HStore store(HBaseTestingUtility u, RegionInfo r, byte[] family) {
    return Mockito.mock(HStore.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "getStorefilesCount" -> {
          return storeFiles(u, r, family).size();
        }
        case "getStorefiles" -> {
          return storeFiles(u, r, family);
        }
        case "getStorefilesSize", "getHFilesSize", "getNumHFiles" -> {
          boolean all = i.getMethod().getName().equals("getStorefilesSize");
          boolean count = i.getMethod().getName().equals("getNumHFiles");
          long sum = 0;
          for (HStoreFile f : storeFiles(u, r, family)) {
            if (all || !StoreFileInfo.isReference(f.getPath()) && !HFileLink.isHFileLink(f.getPath())) {
              sum += count ? 1 : f.getPath().getFileSystem(u.getConfiguration()).getFileStatus(f.getPath()).getLen();
            }
          }
          return sum;
        }
        case "getColumnFamilyDescriptor" -> {
          return u.getAdmin().getDescriptor(r.getTable()).getColumnFamily(family);
        }
        case "getColumnFamilyName" -> {
          return Bytes.toString(family);
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: HStore." + i.getMethod().getName());
        }
      }
    }));
  }

  private static List<HStoreFile> storeFiles(HBaseTestingUtility u, RegionInfo r, byte[] family) throws IOException {
    Path root = CommonFSUtils.getRootDir(u.getConfiguration());
    Path dir = new Path(CommonFSUtils.getTableDir(root, r.getTable()), r.getEncodedName() + "/" + Bytes.toString(family));
    FileSystem fs = dir.getFileSystem(u.getConfiguration());
    List<HStoreFile> files = new ArrayList<>();
    for (FileStatus f : fs.exists(dir) ? fs.listStatus(dir) : new FileStatus[0]) {
      if (f.isFile() && !f.getPath().getName().startsWith(".")) {
        files.add(Mockito.mock(HStoreFile.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
          switch (i.getMethod().getName()) {
            case "getPath" -> {
              return f.getPath();
            }
            case "toString" -> {
              return f.getPath().toString();
            }
            default -> {
              throw new AssumptionViolatedException("JVM internals: HStoreFile." + i.getMethod().getName());
            }
          }
        })));
      }
    }
    return files;
  }

  /** The procedures of the master, as clients are told: objects of HBase's own classes, if those can read what the master sends. */
  static List<Procedure<?>> procedures(HBaseTestingUtility u) throws IOException {
    List<Procedure<?>> found = new ArrayList<>();
    try {
      for (ProcedureProtos.Procedure of : Stubs.masterStub(u)
        .getProcedures(null, MasterProtos.GetProceduresRequest.getDefaultInstance()).getProcedureList()) {
        found.add(procedure(of));
      }
    } catch (ServiceException e) {
      throw ProtobufUtil.handleRemoteException(e);
    }
    return found;
  }

  private static Procedure<?> procedure(ProcedureProtos.Procedure of) {
    try {
      return ProcedureUtil.convertToProcedure(of);
    } catch (IOException | RuntimeException | AssertionError e) {
      // a class that HBase does not have, or a step that is repeated and says why
      boolean isFinished = of.getState() == ProcedureState.SUCCESS || of.getState() == ProcedureState.ROLLEDBACK;
      return Mockito.mock(Procedure.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
        switch (i.getMethod().getName()) {
          case "isFinished" -> {
            return isFinished;
          }
          case "toString" -> {
            return of.toString();
          }
          default -> {
            throw new AssumptionViolatedException("JVM internals: Procedure." + i.getMethod().getName());
          }
        }
      }));
    }
  }

  /** The states of regions, as hbase:meta has them. */
  static AssignmentManager assignments(HBaseTestingUtility u) {
    RegionStates states = Mockito.mock(RegionStates.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "getRegionByStateOfTable" -> {
          return regionsByState(u, i.getArgument(0));
        }
        case "getRegionServerOfRegion" -> {
          return serverOf(u, i.getArgument(0));
        }
        case "getRegionStateNode" -> {
          return stateNode(u, i.getArgument(0));
        }
        case "getRegionAssignments" -> {
          Map<RegionInfo, ServerName> assignments = new HashMap<>();
          for (ServerName server : u.getAdmin().getRegionServers()) {
            External.regionsAt(u, server).forEach(r -> assignments.put(r, server));
          }
          return assignments;
        }
        case "getRegionsOfTable" -> {
          return u.getAdmin().getRegions((TableName) i.getArgument(0));
        }
        case "getRegionsInTransitionCount" -> {
          return u.getAdmin().getClusterMetrics(EnumSet.of(Option.REGIONS_IN_TRANSITION)).getRegionStatesInTransition().size();
        }
        case "hasRegionsInTransition" -> {
          return !u.getAdmin().getClusterMetrics(EnumSet.of(Option.REGIONS_IN_TRANSITION)).getRegionStatesInTransition().isEmpty();
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: RegionStates." + i.getMethod().getName());
        }
      }
    }));
    return Mockito.mock(AssignmentManager.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "getRegionStates" -> {
          return states;
        }
        case "getConfiguration" -> {
          return u.getConfiguration();
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: AssignmentManager." + i.getMethod().getName());
        }
      }
    }));
  }

  /** Where hbase:meta says that a region is; null if it is nowhere. */
  private static ServerName serverOf(HBaseTestingUtility u, RegionInfo r) throws IOException {
    HRegionLocation location = u.getConnection().getRegionLocator(r.getTable())
      .getRegionLocation(r.getStartKey(), r.getReplicaId(), true);
    return location == null ? null : location.getServerName();
  }

  private static RegionStateNode stateNode(HBaseTestingUtility u, RegionInfo r) {
    return Mockito.mock(RegionStateNode.class, Mockito.withSettings().stubOnly().defaultAnswer(i -> {
      switch (i.getMethod().getName()) {
        case "getRegionInfo" -> {
          return r;
        }
        case "getTable" -> {
          return r.getTable();
        }
        case "getRegionLocation" -> {
          return serverOf(u, r);
        }
        case "isInState" -> {
          Map<RegionState.State, List<RegionInfo>> regions = regionsByState(u, r.getTable());
          for (RegionState.State state : (RegionState.State[]) i.getRawArguments()[0]) {
            if (regions.get(state).contains(r) || r.isMetaRegion() && state == RegionState.State.OPEN && serverOf(u, r) != null) {
              return true;
            }
          }
          return false;
        }
        case "isInTransition" -> {
          return false;
        }
        case "toString" -> {
          return r.getRegionNameAsString();
        }
        default -> {
          throw new AssumptionViolatedException("JVM internals: RegionStateNode." + i.getMethod().getName());
        }
      }
    }));
  }

  private static Map<RegionState.State, List<RegionInfo>> regionsByState(HBaseTestingUtility u, TableName t) throws IOException {
    Map<RegionState.State, List<RegionInfo>> regions = new EnumMap<>(RegionState.State.class);
    for (RegionState.State state : RegionState.State.values()) {
      regions.put(state, new ArrayList<>());
    }
    MetaTableAccessor.scanMetaForTableRegions(u.getConnection(), row -> {
      RegionInfo region = MetaTableAccessor.getRegionInfo(row);
      if (region != null && region.getTable().equals(t)) {
        regions.get(RegionStateStore.getRegionState(row, region)).add(region);
      }
      return true;
    }, t);
    return regions;
  }
}
