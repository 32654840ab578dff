package halcyon.compat;

import com.google.protobuf.RpcCallback;
import com.google.protobuf.RpcController;
import com.google.protobuf.Service;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessor;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;
import org.apache.hadoop.hbase.coprocessor.example.generated.ExampleProtos.CountRequest;
import org.apache.hadoop.hbase.coprocessor.example.generated.ExampleProtos.CountResponse;
import org.apache.hadoop.hbase.coprocessor.example.generated.ExampleProtos.RowCountService;
import org.apache.hadoop.hbase.wal.WALEdit;

/** Hooks and an endpoint that do nothing, for what a call costs. */
public class Empty extends RowCountService implements RegionCoprocessor, RegionObserver {
  @Override
  public Optional<RegionObserver> getRegionObserver() {
    return Optional.of(this);
  }

  @Override
  public Iterable<Service> getServices() {
    return Collections.singleton(this);
  }

  @Override
  public void preGetOp(ObserverContext<RegionCoprocessorEnvironment> context, Get get, List<Cell> results) {
    // Nothing.
  }

  @Override
  public void prePut(ObserverContext<RegionCoprocessorEnvironment> context, Put put, WALEdit edit) {
    // Nothing.
  }

  @Override
  public void getRowCount(RpcController controller, CountRequest request, RpcCallback<CountResponse> done) {
    done.run(CountResponse.newBuilder().setCount(1).build());
  }

  @Override
  public void getKeyValueCount(RpcController controller, CountRequest request, RpcCallback<CountResponse> done) {
    done.run(CountResponse.newBuilder().setCount(1).build());
  }
}
