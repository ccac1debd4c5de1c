import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.OutputStream;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.function.Function;
import java.util.function.LongConsumer;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.DeflaterOutputStream;

import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.ManageSnapshots;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DeleteWriteResult;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.parquet.ParquetUtil;
import org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors;
import org.apache.iceberg.shaded.org.apache.parquet.ParquetReadOptions;
import org.apache.iceberg.shaded.org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.Spark3Util;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.status.api.v1.StageData;
import org.apache.spark.status.api.v1.StageStatus;
import org.apache.spark.ui.scope.RDDOperationCluster;

/**
 * What takes many calls of Java, as one call of the gateway that Python reaches it by.
 *
 * Janino, which is part of Spark, compiles it (`gateway_work.py`): it knows no lambdas, and of the
 * elements of a generic collection it does not know the type.
 */
public class GatewayWork {

    private static final String SCAN = "BatchScan ";

    private final Map<String, String> rests = new ConcurrentHashMap<String, String>();

    /** The table's metadata file as JSON, deflated, in Base64: its first piece (see `piece`). */
    public String metadata(Object session, String name, int length) throws Exception {
        Table table = table(session, name);
        String json = TableMetadataParser.toJson(((HasTableOperations) table).operations().current());
        return packed(json.getBytes("UTF-8"), length);
    }

    /**
     * The data files of a snapshot, each with the positions of its deleted rows: packed as texts
     * and lists after their lengths; null where a file is not Parquet, or has other deletes than
     * one deletion vector, or where the table has other columns now.
     */
    public String files(Object session, String name, long snapshot, int length) throws Exception {
        Table table = table(session, name);
        Integer schema = table.snapshot(snapshot).schemaId();
        if (schema == null || schema.intValue() != table.schema().schemaId()) {
            return null;
        }
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        DataOutputStream output = new DataOutputStream(content);
        for (Iterator<FileScanTask> it = planned(table, snapshot).iterator(); it.hasNext();) {
            FileScanTask task = (FileScanTask) it.next();
            if (!isPlain(task)) {
                return null;
            }
            write(output, task.file().location(), positions(table, task, null));
        }
        return packed(content.toByteArray(), length);
    }

    /**
     * The files of a snapshot in which the change since the snapshot `old` is, packed: for each
     * whether it was added after a sequence number (as a byte), its path, and the positions of its
     * deleted rows; of the others, of the rows that were not deleted in `old`. Null as for `files`.
     */
    public String changes(
            Object session, String name, long old, long snapshot, long sequence, int length)
            throws Exception {
        Table table = table(session, name);
        Map<String, FileScanTask> marked = new HashMap<String, FileScanTask>();
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        DataOutputStream output = new DataOutputStream(content);
        for (Iterator<FileScanTask> it = planned(table, snapshot).iterator(); it.hasNext();) {
            FileScanTask task = (FileScanTask) it.next();
            boolean added = task.file().dataSequenceNumber().longValue() > sequence;
            if (!added && !isMarked(task, sequence)) {
                continue;
            }
            if (!isPlain(task)) {
                return null;
            }
            if (added) {
                output.writeByte(1);
                write(output, task.file().location(), positions(table, task, null));
            } else {
                marked.put(task.file().location(), task);
            }
        }
        if (!marked.isEmpty()) {
            for (Iterator<FileScanTask> it = planned(table, old).iterator(); it.hasNext();) {
                FileScanTask before = (FileScanTask) it.next();
                FileScanTask task = (FileScanTask) marked.remove(before.file().location());
                if (task == null) {
                    continue;
                }
                if (!isPlain(before)) {
                    return null;
                }
                PositionDeleteIndex known =
                        before.deletes().isEmpty() ? null : deleted(table, before);
                output.writeByte(0);
                write(output, task.file().location(), positions(table, task, known));
            }
        }
        // A file that lacks in `old` is not older than it, whatever its number says.
        return marked.isEmpty() ? packed(content.toByteArray(), length) : null;
    }

    private List<FileScanTask> planned(Table table, long snapshot) throws Exception {
        TableScan scan = (TableScan) table.newScan().useSnapshot(snapshot).planWith(here());
        List<FileScanTask> found = new ArrayList<FileScanTask>();
        CloseableIterable<FileScanTask> tasks = scan.planFiles();
        try {
            for (Iterator<FileScanTask> it = tasks.iterator(); it.hasNext();) {
                found.add((FileScanTask) it.next());
            }
        } finally {
            tasks.close();
        }
        return found;
    }

    /** Whether a file is Parquet, with no deletes but one deletion vector. */
    private boolean isPlain(FileScanTask task) {
        List<DeleteFile> deletes = task.deletes();
        if (task.file().format() != FileFormat.PARQUET || deletes.size() > 1) {
            return false;
        }
        return deletes.isEmpty() || ((DeleteFile) deletes.get(0)).format() == FileFormat.PUFFIN;
    }

    /** The positions of the deleted rows of a plain file, without those that were `known`. */
    private Positions positions(Table table, FileScanTask task, PositionDeleteIndex known)
            throws Exception {
        Positions gone = new Positions(known);
        if (!task.deletes().isEmpty()) {
            deleted(table, task).forEach(gone);
        }
        return gone;
    }

    private void write(DataOutputStream output, String path, Positions gone) throws Exception {
        byte[] encoded = path.getBytes("UTF-8");
        output.writeInt(encoded.length);
        output.write(encoded);
        output.writeInt(gone.count);
        gone.content.writeTo(output);
    }

    /** Positions, packed. */
    private static final class Positions implements LongConsumer {
        private final ByteArrayOutputStream content = new ByteArrayOutputStream();
        private final PositionDeleteIndex known;
        private int count;

        Positions(PositionDeleteIndex known) {
            this.known = known;
        }

        public void accept(long position) {
            if (known != null && known.isDeleted(position)) {
                return;
            }
            for (int shift = 56; shift >= 0; shift -= 8) {
                content.write((int) (position >>> shift));
            }
            count++;
        }
    }

    /** Bytes, deflated, in Base64: the first piece. */
    private String packed(byte[] content, int length) throws Exception {
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        Deflater fast = new Deflater(Deflater.BEST_SPEED);
        DeflaterOutputStream output = new DeflaterOutputStream(packed, fast);
        output.write(content);
        output.close();
        fast.end();
        return piece(Base64.getEncoder().encodeToString(packed.toByteArray()), length);
    }

    /** So many characters of a text; where it is longer, a space, and what to ask for the next. */
    private String piece(String text, int length) {
        if (text.length() <= length) {
            return text;
        }
        String ticket = UUID.randomUUID().toString();
        rests.put(ticket, text.substring(length));
        return text.substring(0, length) + " " + ticket;
    }

    /** The next piece. */
    public String more(String ticket, int length) {
        return piece((String) rests.remove(ticket), length);
    }

    /**
     * How many Spark jobs a group has started, and how many bytes of input their stages read; then
     * a line for each table that these scanned: how often, and its name.
     */
    public String jobs(Object context, String group) {
        SparkContext spark = ((JavaSparkContext) context).sc();
        int[] jobs = spark.statusTracker().getJobIdsForGroup(group);
        long bytes = 0;
        Map<String, Integer> scans = new HashMap<String, Integer>();
        for (int at = 0; at < jobs.length; at++) {
            try {
                scala.collection.Iterator stages =
                        spark.statusStore().job(jobs[at]).stageIds().iterator();
                while (stages.hasNext()) {
                    int stage = ((Integer) stages.next()).intValue();
                    StageData attempt = spark.statusStore().lastStageAttempt(stage);
                    bytes += attempt.inputBytes();
                    if (attempt.status() != StageStatus.SKIPPED) {
                        count(spark.statusStore().operationGraphForStage(stage).rootCluster(), scans);
                    }
                }
            } catch (NoSuchElementException forgotten) {
                // The store behind Spark's pages forgets old jobs.
            }
        }
        StringBuilder found = new StringBuilder(jobs.length + " " + bytes);
        for (Iterator<String> it = scans.keySet().iterator(); it.hasNext();) {
            String table = (String) it.next();
            found.append("\n").append(scans.get(table)).append(" ").append(table);
        }
        return found.toString();
    }

    /** Count the scans among the operators of a stage. */
    private static void count(RDDOperationCluster operator, Map<String, Integer> scans) {
        if (operator.name().startsWith(SCAN)) {
            String table = operator.name().substring(SCAN.length());
            Integer known = (Integer) scans.get(table);
            scans.put(table, Integer.valueOf(known == null ? 1 : known.intValue() + 1));
        }
        scala.collection.Iterator inner = operator.childClusters().iterator();
        while (inner.hasNext()) {
            count((RDDOperationCluster) inner.next(), scans);
        }
    }

    /** The columns of a table as JSON. */
    public String schema(Object session, String name) throws Exception {
        return org.apache.iceberg.SchemaParser.toJson(table(session, name).schema());
    }

    /**
     * Make a branch at the snapshot `base` and put a change on it, in one commit: the path of the
     * file with the new rows, "" when there are none; null when the snapshot has not one file for
     * each that rows are to be taken from.
     *
     * `summary` holds pairs of texts, `gone` for each file its path or the CRC-32 of that and its
     * positions, each text and each list after its length. `rows` is a Parquet file (null: no rows
     * come).
     */
    public String commit(
            Object session, String name, String branch, long base,
            byte[] summary, byte[] rows, byte[] gone) throws Exception {
        Table table = table(session, name);
        Transaction transaction = table.newTransaction();
        ManageSnapshots manage = transaction.manageSnapshots();
        manage = table.refs().containsKey(branch)
                ? manage.replaceBranch(branch, base) : manage.createBranch(branch, base);
        manage.commit();
        RowDelta change = transaction.newRowDelta();
        change.toBranch(branch);
        change.validateFromSnapshot(base);
        change.scanManifestsWith(here());
        DataInputStream pairs = new DataInputStream(new ByteArrayInputStream(summary));
        while (pairs.available() > 0) {
            String key = text(pairs);
            change.set(key, text(pairs));
        }
        Map<String, int[]> positions = positions(gone);
        if (!positions.isEmpty()) {
            DeleteWriteResult vectors = vectors(table, base, positions);
            if (vectors == null) {
                return null;
            }
            for (Iterator<DeleteFile> it = vectors.deleteFiles().iterator(); it.hasNext();) {
                change.addDeletes((DeleteFile) it.next());
            }
            for (Iterator<DeleteFile> it = vectors.rewrittenDeleteFiles().iterator(); it.hasNext();) {
                change.removeDeletes((DeleteFile) it.next());
            }
        }
        String path = "";
        if (rows != null) {
            DataFile file = dataFile(table, rows);
            path = file.location();
            change.addRows(file);
        }
        change.commit();
        transaction.commitTransaction();
        return path;
    }

    /**
     * Stage the files of a snapshot that a sequence number does not cover, under temporary views:
     * `fresh` shows the files that were added since, `marked` those of the others from which rows
     * were deleted since, each with where its rows are and whether they are deleted. Returns the
     * bytes of both; where there are no files there is no view.
     */
    public String changed(
            Object session, String name, long snapshot, long sequence, String fresh, String marked)
            throws Exception {
        Table table = table(session, name);
        List<FileScanTask> added = new ArrayList<FileScanTask>();
        List<FileScanTask> others = new ArrayList<FileScanTask>();
        for (Iterator<FileScanTask> it = planned(table, snapshot).iterator(); it.hasNext();) {
            FileScanTask task = (FileScanTask) it.next();
            if (task.file().dataSequenceNumber().longValue() > sequence) {
                added.add(task);
            } else if (isMarked(task, sequence)) {
                others.add(task);
            }
        }
        return stage(session, table, fresh, added) + " " + stage(session, table, marked, others);
    }

    private boolean isMarked(FileScanTask task, long sequence) {
        for (Iterator<DeleteFile> it = task.deletes().iterator(); it.hasNext();) {
            if (((DeleteFile) it.next()).dataSequenceNumber().longValue() > sequence) {
                return true;
            }
        }
        return false;
    }

    private long stage(Object session, Table table, String view, List<FileScanTask> tasks)
            throws Exception {
        if (tasks.isEmpty()) {
            return 0;
        }
        ScanTaskSetManager.get().stageTasks(table, view, tasks);
        DataSourceV2Relation relation = DataSourceV2Relation.create(
                new Marked(staged(table, view)),
                scala.Option.empty(), scala.Option.empty());
        Dataset.ofRows((SparkSession) session, relation).createOrReplaceTempView(view);
        long bytes = 0;
        for (Iterator<FileScanTask> it = tasks.iterator(); it.hasNext();) {
            bytes += ((FileScanTask) it.next()).length();
        }
        return bytes;
    }

    /** Forget what `changed` has staged. */
    public void unstage(Object session, String name, String fresh, String marked) throws Exception {
        Table table = table(session, name);
        ScanTaskSetManager.get().removeTasks(table, fresh);
        ScanTaskSetManager.get().removeTasks(table, marked);
        ((SparkSession) session).catalog().dropTempView(fresh);
        ((SparkSession) session).catalog().dropTempView(marked);
    }

    /** The files that are staged under an id, as a table of Spark's connector API. */
    public SupportsRead staged(Table table, String id) throws Exception {
        ClassLoader loader = Table.class.getClassLoader();
        String source = "org.apache.iceberg.spark.source.";
        try {
            return (SupportsRead) Class.forName(source + "SparkRewriteTable", true, loader)
                    .getConstructor(new Class[] {Table.class, String.class})
                    .newInstance(new Object[] {table, id});
        } catch (ClassNotFoundException ofSpark40) {
            return new ByOption(
                    (SupportsRead) Class.forName(source + "SparkTable", true, loader)
                            .getConstructor(
                                    new Class[] {Table.class, Long.class, Boolean.TYPE, Boolean.TYPE})
                            // Read as by a rewrite: with the columns of row lineage.
                            .newInstance(new Object[] {table, null, Boolean.FALSE, Boolean.TRUE}),
                    id);
        }
    }

    /** Staged files where Iceberg takes their id as an option of the read. */
    public static final class ByOption implements SupportsRead {
        private final SupportsRead files;
        private final String id;

        public ByOption(SupportsRead files, String id) {
            this.files = files;
            this.id = id;
        }

        public String name() {
            return files.name();
        }

        public StructType schema() {
            return files.schema();
        }

        public java.util.Set capabilities() {
            return files.capabilities();
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            Map<String, String> own = new HashMap<String, String>(options.asCaseSensitiveMap());
            own.put("scan-task-set-id", id);
            return files.newScanBuilder(new CaseInsensitiveStringMap(own));
        }
    }

    /** Staged files, whose rows also show where they are and whether they are deleted. */
    public static final class Marked implements SupportsRead {
        private final SupportsRead files;

        public Marked(SupportsRead files) {
            this.files = files;
        }

        public String name() {
            return files.name();
        }

        public StructType schema() {
            return files.schema()
                    .add("_file", DataTypes.StringType)
                    .add("_pos", DataTypes.LongType)
                    .add("_deleted", DataTypes.BooleanType);
        }

        public java.util.Set capabilities() {
            return files.capabilities();
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return files.newScanBuilder(options);
        }
    }

    private Table table(Object session, String name) throws Exception {
        // Catalogs are looked up in the thread's active session.
        SparkSession.setActiveSession((SparkSession) session);
        return Spark3Util.loadIcebergTable((SparkSession) session, name);
    }

    /** Iceberg's own threads are waited for by naps of 10 ms, a handful for each commit. */
    private ExecutorService here() {
        return MoreExecutors.newDirectExecutorService();
    }

    private DataFile dataFile(Table table, byte[] content) throws Exception {
        String path = table.locationProvider().newDataLocation(UUID.randomUUID() + ".parquet");
        OutputStream stream = table.io().newOutputFile(path).create();
        stream.write(content);
        stream.close();
        return DataFiles.builder(table.spec())
                .withPath(path)
                .withFileSizeInBytes(content.length)
                .withFormat("PARQUET")
                .withMetrics(metrics(new InMemoryInputFile(path, content), table))
                .build();
    }

    /** As `ParquetUtil.fileMetrics`, which reads Hadoop's XML files anew for each file (8 ms). */
    private Metrics metrics(InputFile file, Table table) throws Exception {
        Method adapter =
                Class.forName("org.apache.iceberg.parquet.ParquetIO", true, Table.class.getClassLoader())
                        .getDeclaredMethod("file", new Class[] {InputFile.class});
        adapter.setAccessible(true);
        ParquetFileReader reader = ParquetFileReader.open(
                (org.apache.iceberg.shaded.org.apache.parquet.io.InputFile)
                        adapter.invoke(null, new Object[] {file}),
                ParquetReadOptions.builder(new PlainParquetConfiguration()).build());
        try {
            return ParquetUtil.footerMetrics(
                    reader.getFooter(), Collections.EMPTY_LIST.stream(), MetricsConfig.forTable(table));
        } finally {
            reader.close();
        }
    }

    private String text(DataInputStream input) throws Exception {
        byte[] bytes = new byte[input.readInt()];
        input.readFully(bytes);
        return new String(bytes, "UTF-8");
    }

    private Map<String, int[]> positions(byte[] packed) throws Exception {
        Map<String, int[]> found = new HashMap<String, int[]>();
        DataInputStream input = new DataInputStream(new ByteArrayInputStream(packed));
        while (input.available() > 0) {
            String file = text(input);
            int[] each = new int[input.readInt()];
            for (int at = 0; at < each.length; at++) {
                each[at] = input.readInt();
            }
            found.put(file, each);
        }
        return found;
    }

    /** One deletion vector a data file, which takes in the one that the file has. */
    private DeleteWriteResult vectors(Table table, long base, Map<String, int[]> gone)
            throws Exception {
        Map<String, PositionDeleteIndex> known = new HashMap<String, PositionDeleteIndex>();
        Map<String, int[]> paths = new HashMap<String, int[]>();
        TableScan scan = (TableScan) table.newScan().useSnapshot(base).planWith(here());
        CloseableIterable<FileScanTask> tasks = scan.planFiles();
        try {
            for (Iterator<FileScanTask> it = tasks.iterator(); it.hasNext();) {
                FileScanTask task = (FileScanTask) it.next();
                String path = task.file().location();
                int[] positions = (int[]) gone.get(gone.containsKey(path) ? path : crc(path));
                if (positions == null) {
                    continue;
                }
                paths.put(path, positions);
                if (!task.deletes().isEmpty()) {
                    known.put(path, deleted(table, task));
                }
            }
        } finally {
            tasks.close();
        }
        if (paths.size() != gone.size()) {
            return null;
        }
        OutputFileFactory files =
                OutputFileFactory.builderFor(table, 1, 1).format(FileFormat.PUFFIN).build();
        BaseDVFileWriter writer = new BaseDVFileWriter(files, new Known(known));
        for (Iterator<Map.Entry<String, int[]>> it = paths.entrySet().iterator(); it.hasNext();) {
            Map.Entry<String, int[]> each = (Map.Entry<String, int[]>) it.next();
            int[] positions = (int[]) each.getValue();
            for (int at = 0; at < positions.length; at++) {
                writer.delete((String) each.getKey(), positions[at], table.spec(), null);
            }
        }
        writer.close();
        return writer.result();
    }

    /** The deletion vector of a file that has one. */
    private PositionDeleteIndex deleted(Table table, FileScanTask task) throws Exception {
        List<DeleteFile> deletes = task.deletes();
        DeleteFile vector = (DeleteFile) deletes.get(0);
        Map<DeleteFile, InputFile> inputs = new HashMap<DeleteFile, InputFile>();
        inputs.put(vector, table.io().newInputFile(vector.location()));
        BaseDeleteLoader loader = new BaseDeleteLoader(new Known(inputs));
        return loader.loadPositionDeletes(deletes, task.file().location());
    }

    /** A map as a function that gives null for what it does not hold. */
    private static final class Known implements Function {
        private final Map values;

        Known(Map values) {
            this.values = values;
        }

        public Object apply(Object key) {
            return values.get(key);
        }
    }

    private String crc(String path) throws Exception {
        CRC32 sum = new CRC32();
        sum.update(path.getBytes("UTF-8"));
        return Long.toString(sum.getValue());
    }
}
