# make run     builds the server and starts it; DATA=directory, OPTIONS="more options of halcyon standalone"
# make shell   opens the shell on a running server; SHELL_OPTIONS="options of halcyon shell"
# make test    everything that a change must pass: checks, unit tests, real clients, a few of HBase's own tests, kill -9
# make build   only the server
# make browser every page of the console in a headless Chromium, which is installed if there is none; SCREENSHOTS=directory
# make browser-cluster    the console of a cluster: two masters and two region servers, one of each killed; SCREENSHOTS=directory
# make book    the documentation as HTML below CARGO_TARGET_DIR; needs mdbook (cargo install mdbook)
# make conformance    HBase's own tests of testing/conformance; CONFORMANCE="options of testing/conformance/run.sh"
# make shell-compare  250 commands of the shell on HBase 2.6.4 and on Halcyon, and their output compared (fetches HBase through Maven)
# make differential   random scripts on HBase 2.6.4 and on Halcyon, every answer compared, then written facts (docs/DIFFERENTIAL.md);
#              SECONDS=120, SEED=, STEPS=, ONLY=, STOP=first, SHRINK=seconds, AGAINST=hbase
# make quickstart     the commands of the quick start, timed
# make nonce-kills    1,000 kills around the answer of an increment or append, about 30 minutes; ROUNDS=number
# make files   HFiles and logs both ways with HBase's own classes, in every combination (fetches them through Maven)
# make roots   root directories under a real HBase and under Halcyon in turn, killed and stopped; a short form is part of make test
# make sim          a cluster from each of SEEDS=10000 seeds (docs/SIMULATION.md); FIRST= the first seed
# make sim-servers  the same with real region servers; SEEDS=, FIRST=
# make models       small models of protocols, of which all states are explored (docs/MODELS.md); MODELS="wal lease"
# make sim-size     a master's start with 1,000 servers and 1,000,000 regions, and the death of a server; SIZE="options":
#              with --decommission a server is decommissioned and dies while its regions move, and another one is decommissioned
# make judges       faults that are planted where tests look: each test must say no, and yes without them; HALCYON=, JUDGES="mixed-load ..."
# make sim-flaws    deliberate bugs of masters and region servers, each of which the seeds must find
# make cluster      a ZooKeeper, a NameNode and three DataNodes on this machine, for an hour (testing/cluster); CLUSTER="options of cluster.sh up"
# make hdfs-test    files in HDFS, with writers frozen and DataNodes killed (testing/cluster), some minutes
# make hdfs-suite   the tests of make test that start servers, with root directories in HDFS
# make storage-policies   the NameNode is asked for the storage policies that servers have set, and where blocks are
# make erasure-coding-test   tables that HDFS keeps by an erasure coding policy or in two copies, at servers of Halcyon and HBase; DataNodes
#              and a server are killed; some minutes
# make replication-test   replication between HBase 2.6.4 and Halcyon, which is killed meanwhile; ROUNDS=number, default 3
# make replication-tools-test   bulk loads, VerifyReplication and serial peers between the two; some minutes
# make cluster-replication   a cluster of Halcyon and HBase 2.6.4 as peers of each other, with servers and masters killed; ROUNDS=number
# make cluster-serial   a serial peer of a cluster of Halcyon, with regions moved and servers killed; ROUNDS=number, default 3
# make replication-kills   both ways, with HBase and Halcyon killed in turn; KILLS=number, default 20; ROOT=local, hdfs or wals
# make migrate-test       a table moves from HBase 2.6.4 to Halcyon and back under a Java client, and the migration is killed in each step;
#              ROWS=, THREADS=, FAULTS=0 without kills
# make cluster-migrate    the same with a cluster of Halcyon, of which two region servers and a master are killed; 3 minutes
# make backup-test        HBase's backup tool against a standalone server, its answers compared with those of HBase 2.6.4; some minutes
# make cluster-backup     the same in clusters of several servers, under a master of Halcyon and under HBase's
# make accumulo-test      tables of a real Accumulo 2.1.4 are imported, and each cell is compared; fetches it through Maven; ROWS=, HBASE=1
# make shadow-test        HBase's clients through the proxy of halcyon shadow, and their reads replayed against HBase 2.6.4 and Halcyon;
#              ROWS=, ROUNDS=, CLIENTS=1 with all clients of testing/compat, PAGE=file to keep the page
# make cluster-shadow     halcyon shadow between a cluster of HBase and one of Halcyon under YCSB, with servers of both killed; 10 minutes
# make hdfs-kills   a standalone server with its root in HDFS, killed while a Java client writes; ROUNDS=number, default 10
# make mixed-pages-test   the pages of a Halcyon region server in such a cluster, and its RPC registry by a Java client
# make mixed-test   a Halcyon region server in a cluster of HBase 2.6.4: regions moved, cloned, split, merged; the server killed, frozen, stopped
# make mixed-load   a Java client beside moves, kills and freezes of a Halcyon server in an HBase cluster; MOVES=, KILLS=, FREEZES=, FAULTS=, ROWS=;
#              MEMBERS= kills and freezes the servers of a ZooKeeper ensemble; SHELL_MOVES=hbase HBASE_SHELL=jar moves by HBase's own shell
# make coprocessor-host   the jar of the JVM that runs coprocessors, by Maven, below CARGO_TARGET_DIR (docs/COPROCESSORS.md)
# make coprocessors-test  coprocessors in that JVM: answers compared with HBase's, the JVM killed, frozen and disturbed; some minutes
# make phoenix-test       Apache Phoenix from Maven Central over Halcyon, answers compared with those over HBase; some minutes
# make phoenix-suite      Phoenix's own integration tests over Halcyon (CLASSES= a regular expression); several hours
# make groups-test  groups of region servers and the normalizer in a cluster of Halcyon, with HBase's own client classes; two minutes
# make file-tracker-test  store file trackers, compared with HBase, and a root directory that goes back and forth, with kills; 5 minutes
# make merge-test forced merges, and what fixMeta merges, compared with HBase; two minutes
# make engines-test Spark and the output format of Hive: bulk loads, reads, writes, a snapshot; a minute
# make mob-test     tables with MOB families, compared with HBase, and a root directory that goes back and forth; 5 minutes
# make encryption-test   one root directory with encrypted tables and logs under HBase 2.6.4 and Halcyon, with kills, new keys and
#              missing ones; two minutes
# make quotas-test  quotas in a cluster of Halcyon, and at a Halcyon server under HBase's master, compared with HBase; 15 minutes
# make answers-test   merges, store file trackers and coprocessors in clusters of several processes, compared with HBase; some minutes
# make own-test   what administrators do in a cluster of Halcyon, with the rows counted after each step; some minutes
# make hbck2-cluster  HBase's own HBCK2 at a cluster of Halcyon, with servers and masters killed; HALCYON_HBCK2_SOURCE= a checkout of
#              apache/hbase-operator-tools at rel/1.3.0; some minutes
# make rolling-restart   every process of a cluster of Halcyon is restarted under a Java client; ROUNDS=, HALCYON_NEXT=program to upgrade to
# make replace-master    a running cluster of HBase gets a master of Halcyon, and HBase's again, under a Java client
# make bench-full-wals  how long recoveries take with and without a limit of the WALs; TIMES="ms ..."
# make bench-cold-start  time until all regions of a cluster are open after a start; REGIONS=
# make bench-decommission  time until a decommissioned server has no regions, and until those of one that dies meanwhile are open; REGIONS=
# make own-clients   HBase's clients, LoadTestTool, PerformanceEvaluation and YCSB against three region servers; PARTS="compat load pe ycsb"
# make bench-servers  puts, batches and gets at 1, 2 and 3 region servers, Halcyon beside HBase; BENCH="options of hdfs-side-by-side.sh"
# make replicas-test   region replicas in a standalone server and in a cluster, with a primary's server frozen; some minutes
# make own-load  a cluster of Halcyon under a Java client: regions move, servers are killed and frozen, masters killed;
#              MOVES=, KILLS=, FREEZES=, MASTERS=, SERVERS=, HBASE=, ROWS=
# make histories   two recorders beside kills, freezes and moves in a cluster, and a check that what they saw is linearizable;
#              SYSTEM=hbase does the same to HBase 2.6.4; SECONDS_OF_FAULTS=, SEED=, RATE=
# make fault-matrix  the same beside 37 kinds of faults, first each alone, then two at a time; as root, with nft and libfaketime;
#              LOADS="list ingest" adds HBase's BigLinkedList and a continuous ingest; ONLY="restart cut_all" makes these kinds only
# make keeper-test  keepers in a cluster of Halcyon: what they report and how fast, frozen servers, pauses, a master that is killed; three minutes
# make status-test  clients that are told of a dead server (hbase.status.published): how long their calls take when a region server is frozen; six minutes
# make mixed-faults   the same client beside cuts between a Halcyon server and one other process, slow and full disks, a second server of the same
#              name, clocks apart, garbage in znodes; STEPS= chooses. Needs root, nftables, libfaketime
# make mixed-tools-test   HBase's balancer, normalizer, ExportSnapshot, RegionMover, decommission and cluster stop over servers of both kinds
# make mixed-conformance  HBase's own client tests in an HBase cluster, half of the region servers Halcyon's; SERVERS=mixed or hbase,
#              CONFORMANCE="options of testing/conformance/run.sh"; about an hour
# make linked-list  HBase's BigLinkedList in an HBase cluster while servers of HBase and of Halcyon are killed; ITERATIONS=number, default 2
# make zookeeper-test   sessions with ZooKeeper, with servers killed, frozen and cut off (testing/cluster), also of an ensemble of three;
#              znodes beside HBase's; ten minutes
# make bench-compare   the same load against Halcyon and HBase; BENCH="options of testing/bench/side-by-side.sh"
# make bench-hdfs     puts on HDFS at a region server of Halcyon and at one of HBase, and how long they wait when HDFS fails; 15 minutes
# make bench-replication   lag and rate of replication between Halcyon and HBase, beside HBase to HBase; some minutes
# make bench-recovery  for how long rows are away when a server is killed or frozen, a master killed, a region moved: Halcyon beside HBase;
#              ROUNDS=, CASES=, OUT=, SYSTEMS="halcyon hbase hbase-fast"; 30 rounds take hours
# make bench   what the engine costs: bench-engine (beside RocksDB, which is built for it: needs a C++ compiler and libclang)
#              bench-cell (a cell's way) and bench-server (ten minutes of a mixed load on a server); BENCH="options", see programs/bench/README.md
# make package    a .deb and one with debug symbols below CARGO_TARGET_DIR/debian; installs cargo-deb if need be
# make package-test   installs, starts, queries, upgrades and removes the package in a fresh Debian (root, debootstrap)
# make container  an image with the program and nothing else, by podman
# make container-test  starts, uses, stops and starts the image (podman, runc)
# CARGO_TARGET_DIR says where the build goes; the default stays outside the source tree.

CARGO_TARGET_DIR ?= $(HOME)/.cache/halcyon/target
export CARGO_TARGET_DIR
DATA ?= ./halcyon-data
OPTIONS ?=
BENCH ?=
SHELL_OPTIONS ?=
SEEDS ?= 10000
FIRST ?= 0
SIZE ?=
CONFORMANCE ?=
CLUSTER ?=
SERVERS ?= mixed
ROUNDS ?=
SCREENSHOTS ?=
PARTS ?=
JUDGES ?=
SECONDS ?= 120
HALCYON := $(CARGO_TARGET_DIR)/release/halcyon

# The triple of this machine, such as x86_64-unknown-linux-gnu.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

CARGO_DEB := $(HOME)/.cache/halcyon/tools/bin/cargo-deb

.PHONY: fault-matrix differential package container container-build container-test package-files package-test run shell shell-compare quickstart build book test check unit browser compat compat-tested conformance nonce-kills files roots cluster hdfs-test hdfs-suite storage-policies erasure-coding-test replication-test replication-tools-test replication-kills bench-replication migrate-test cluster-migrate shadow-test cluster-shadow accumulo-test backup-test cluster-backup hdfs-kills mixed-pages-test mixed-test mixed-load hbck2-cluster own-test own-load own-clients cluster-replication cluster-serial keeper-test status-test rolling-restart replace-master bench-cold-start bench-decommission bench-full-wals mixed-faults mixed-tools-test mixed-conformance linked-list zookeeper-test bench-compare bench-hdfs bench-servers bench-recovery bench bench-engine bench-cell bench-server bench-build histories browser-cluster coprocessor-host coprocessors-test phoenix-test phoenix-suite groups-test quotas-test engines-test mob-test file-tracker-test merge-test encryption-test replicas-test answers-test models sim sim-servers sim-size sim-flaws judges judges-short

run: build
	exec "$(HALCYON)" standalone --data "$(DATA)" $(OPTIONS)

shell: build
	@exec "$(HALCYON)" shell $(SHELL_OPTIONS)

build:
	cargo build --release --package halcyon

book:
	mdbook build --dest-dir "$(CARGO_TARGET_DIR)/book"
	@echo "$(CARGO_TARGET_DIR)/book/index.html"

test: check unit judges-short compat-tested

check:
	cargo xtask check

# A test program that hangs is ended, and the others still run.
unit:
	CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUNNER="timeout --verbose 20m" cargo test --workspace --no-fail-fast

browser:
	HALCYON_SCREENSHOTS="$(SCREENSHOTS)" testing/browser/run.sh

browser-cluster: build
	HALCYON="$(HALCYON)" HALCYON_SCREENSHOTS="$(SCREENSHOTS)" testing/browser/cluster.sh

compat: build
	HALCYON="$(HALCYON)" testing/compat/run.sh

# The program that the unit tests have started, which asserts more. A release build would take some minutes.
compat-tested:
	cargo test --quiet --workspace --no-run
	HALCYON="$(CARGO_TARGET_DIR)/debug/halcyon" testing/compat/run.sh

conformance: build
	HALCYON="$(HALCYON)" testing/conformance/run.sh $(CONFORMANCE)
	$(if $(CONFORMANCE),,HALCYON="$(HALCYON)" testing/conformance/run.sh --own)

shell-compare: build
	HALCYON="$(HALCYON)" testing/compat/shell.sh

differential: build
	SECONDS="$(SECONDS)" HALCYON="$(HALCYON)" testing/differential/run.sh
	HALCYON="$(HALCYON)" testing/differential/run.sh semantics

quickstart: build
	HALCYON="$(HALCYON)" docs/quickstart/time.sh

coprocessor-host:
	mvn -q -B -ntp -f cluster/coprocessor-host/pom.xml -Dout="$(CARGO_TARGET_DIR)/coprocessor-host" package
	@echo "$(CARGO_TARGET_DIR)/coprocessor-host/halcyon-coprocessor-host.jar"

coprocessors-test: build
	HALCYON="$(HALCYON)" testing/compat/coprocessors.sh

phoenix-test: build
	HALCYON="$(HALCYON)" testing/compat/phoenix.sh

phoenix-suite: build
	HALCYON="$(HALCYON)" testing/compat/phoenix-suite.sh $(CLASSES)

# Seconds, and no server.
judges-short:
	testing/judges/run.sh servers filters

judges: build
	cargo build --package halcyon-histories
	HALCYON="$(HALCYON)" testing/judges/run.sh $(JUDGES)

nonce-kills: build
	HALCYON="$(HALCYON)" testing/compat/nonce-kills.sh $(or $(ROUNDS),1000)

package: package-files $(CARGO_DEB)
	"$(CARGO_DEB)" deb --no-build --package halcyon

package-files: build
	rm -rf "$(CARGO_TARGET_DIR)/release/package"
	mkdir -p "$(CARGO_TARGET_DIR)/release/package/completions"
	"$(HALCYON)" man-pages "$(CARGO_TARGET_DIR)/release/package/man"
	"$(HALCYON)" completions bash > "$(CARGO_TARGET_DIR)/release/package/completions/halcyon"
	"$(HALCYON)" completions zsh > "$(CARGO_TARGET_DIR)/release/package/completions/_halcyon"
	"$(HALCYON)" completions fish > "$(CARGO_TARGET_DIR)/release/package/completions/halcyon.fish"

$(CARGO_DEB):
	cargo install cargo-deb --locked --root "$(HOME)/.cache/halcyon/tools"

package-test: package
	testing/package/run.sh "$(CARGO_TARGET_DIR)/debian"

# The program of the image has no shared libraries, so the image needs no other files.
container-build:
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --package halcyon --target "$(HOST)"
	strip -o "$(CARGO_TARGET_DIR)/$(HOST)/release/halcyon-stripped" "$(CARGO_TARGET_DIR)/$(HOST)/release/halcyon"

container: container-build
	rm -rf "$(CARGO_TARGET_DIR)/container"
	mkdir -p "$(CARGO_TARGET_DIR)/container/data"
	cp packaging/container/Containerfile "$(CARGO_TARGET_DIR)/container/"
	cp "$(CARGO_TARGET_DIR)/$(HOST)/release/halcyon-stripped" "$(CARGO_TARGET_DIR)/container/halcyon"
	podman build --isolation chroot -t halcyon "$(CARGO_TARGET_DIR)/container"

container-test: container-build build
	testing/package/container.sh "$(CARGO_TARGET_DIR)/$(HOST)/release/halcyon-stripped" "$(HALCYON)"

files:
	testing/compat/files.sh

roots: build
	HALCYON="$(HALCYON)" testing/compat/root.sh all

models:
	cargo run --release --package halcyon-models -- $(MODELS)

sim:
	cargo run --release --package halcyon-sim -- --seeds $(SEEDS) --first $(FIRST)

sim-servers:
	cargo run --release --package halcyon-sim -- --real --seeds $(SEEDS) --first $(FIRST)

sim-size:
	cargo run --release --package halcyon-sim --bin halcyon-sim-size -- $(SIZE)

sim-flaws:
	testing/sim/flaws.sh

cluster:
	testing/cluster/cluster.sh up $(CLUSTER)

hdfs-test:
	testing/cluster/hdfs-test.sh

storage-policies: build
	HALCYON="$(HALCYON)" testing/cluster/storage-policies.sh

erasure-coding-test: build
	HALCYON="$(HALCYON)" testing/cluster/erasure-coding.sh

replication-test: build
	HALCYON="$(HALCYON)" testing/compat/replication.sh $(ROUNDS)

replication-tools-test: build
	HALCYON="$(HALCYON)" testing/compat/replication-tools.sh

replication-kills: build
	HALCYON="$(HALCYON)" testing/compat/replication-kills.sh $(KILLS)

migrate-test: build
	HALCYON="$(HALCYON)" testing/compat/migrate.sh

cluster-migrate: build
	HALCYON="$(HALCYON)" testing/cluster/migrate.sh

cluster-backup: build
	HALCYON="$(HALCYON)" testing/cluster/backup-test.sh

backup-test: build
	HALCYON="$(HALCYON)" testing/compat/backup.sh
	HALCYON="$(HALCYON)" BACKUP_TABLE=ops:books testing/compat/backup.sh

accumulo-test: build
	HALCYON="$(HALCYON)" testing/compat/accumulo.sh

cluster-shadow: build
	HALCYON="$(HALCYON)" testing/cluster/shadow.sh

shadow-test: build
	HALCYON="$(HALCYON)" ROUNDS= testing/compat/shadow.sh

hdfs-kills: build
	HALCYON="$(HALCYON)" testing/cluster/hdfs-kills.sh $(ROUNDS)

mixed-pages-test: build
	HALCYON="$(HALCYON)" testing/cluster/mixed-pages-test.sh

hdfs-suite: build
	HALCYON="$(HALCYON)" testing/cluster/hdfs-suite.sh

mixed-test: build
	HALCYON="$(HALCYON)" testing/cluster/mixed-test.sh
	HALCYON="$(HALCYON)" testing/cluster/mixed-regions-test.sh

mixed-load: build
	HALCYON="$(HALCYON)" testing/cluster/mixed-load.sh

rolling-restart: build
	HALCYON="$(HALCYON)" testing/cluster/rolling-restart.sh

replace-master: build
	HALCYON="$(HALCYON)" testing/cluster/replace-master.sh

bench-cold-start: build
	HALCYON="$(HALCYON)" testing/bench/cold-start.sh

bench-decommission: build
	HALCYON="$(HALCYON)" testing/bench/decommission.sh

bench-full-wals: build
	HALCYON="$(HALCYON)" testing/bench/full-wals.sh $(TIMES)

file-tracker-test: build
	HALCYON="$(HALCYON)" testing/compat/file-tracker.sh
	HALCYON="$(HALCYON)" testing/compat/file-tracker.sh --root

merge-test: build
	HALCYON="$(HALCYON)" testing/compat/merge.sh

engines-test: build
	HALCYON="$(HALCYON)" testing/compat/spark.sh
	HALCYON="$(HALCYON)" testing/compat/hive.sh

mob-test: build
	HALCYON="$(HALCYON)" testing/compat/mob.sh
	HALCYON="$(HALCYON)" testing/compat/mob.sh --root
	HALCYON="$(HALCYON)" testing/compat/mob.sh --export

encryption-test: build
	HALCYON="$(HALCYON)" testing/compat/encryption.sh

answers-test: build
	HALCYON="$(HALCYON)" testing/cluster/answers-test.sh

quotas-test: build
	HALCYON="$(HALCYON)" testing/cluster/quotas-test.sh

groups-test: build
	HALCYON="$(HALCYON)" testing/cluster/groups-test.sh

cluster-replication: build
	HALCYON="$(HALCYON)" testing/cluster/replication.sh $(ROUNDS)

cluster-serial: build
	HALCYON="$(HALCYON)" testing/cluster/replication-serial.sh $(ROUNDS)

own-clients: build
	HALCYON="$(HALCYON)" testing/cluster/own-clients.sh $(PARTS)

hbck2-cluster: build
	HALCYON="$(HALCYON)" testing/cluster/hbck2-test.sh

own-test: build
	HALCYON="$(HALCYON)" testing/cluster/own-test.sh

replicas-test: build
	HALCYON="$(HALCYON)" testing/cluster/replicas-test.sh

own-load: build
	HALCYON="$(HALCYON)" testing/cluster/own-load.sh

histories: build
	cargo build --package halcyon-histories
	HALCYON="$(HALCYON)" testing/cluster/histories.sh

fault-matrix: build
	cargo build --package halcyon-histories
	HALCYON="$(HALCYON)" FAULTS=all testing/cluster/histories.sh

keeper-test: build
	HALCYON="$(HALCYON)" testing/cluster/keeper-test.sh

status-test: build
	cargo build --release -p halcyon-client --example recovery
	HALCYON="$(HALCYON)" testing/cluster/status-test.sh

mixed-faults: build
	HALCYON="$(HALCYON)" testing/cluster/mixed-faults.sh

mixed-tools-test: build
	HALCYON="$(HALCYON)" testing/cluster/mixed-tools-test.sh

mixed-conformance: build
	HALCYON="$(HALCYON)" SERVERS="$(SERVERS)" testing/cluster/mixed-conformance.sh $(CONFORMANCE)

linked-list: build
	HALCYON="$(HALCYON)" testing/cluster/linked-list.sh $(ITERATIONS)

zookeeper-test:
	testing/cluster/zookeeper-test.sh

bench-compare: build
	HALCYON="$(HALCYON)" testing/bench/side-by-side.sh $(BENCH)

bench-replication: build
	HALCYON="$(HALCYON)" testing/bench/replication.sh

bench-recovery: build
	HALCYON="$(HALCYON)" testing/bench/recovery.sh $(SYSTEMS)

bench-hdfs: build
	HALCYON="$(HALCYON)" testing/bench/hdfs-side-by-side.sh $(BENCH)
	HALCYON="$(HALCYON)" testing/bench/hdfs-stalls.sh

bench-servers: build
	for servers in 1 2 3; do REGIONS=16 SERVERS=$$servers HALCYON="$(HALCYON)" testing/bench/hdfs-side-by-side.sh $(BENCH) || exit 1; done

bench: bench-engine bench-cell bench-server

bench-engine: bench-build
	cargo build --release --manifest-path programs/bench/rocksdb/Cargo.toml --target-dir "$(CARGO_TARGET_DIR)/rocksdb"
	"$(CARGO_TARGET_DIR)/release/halcyon-engine-bench" compare \
		--beside "$(CARGO_TARGET_DIR)/rocksdb/release/halcyon-bench-rocksdb" $(BENCH)

bench-cell: bench-build
	"$(CARGO_TARGET_DIR)/release/halcyon-cell-bench" $(BENCH)

bench-server: bench-build build
	"$(CARGO_TARGET_DIR)/release/halcyon-server-bench" --halcyon "$(HALCYON)" $(BENCH)

bench-build:
	cargo build --release --package halcyon-bench
