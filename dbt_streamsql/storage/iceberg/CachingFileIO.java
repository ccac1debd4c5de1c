package org.apache.iceberg;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.regex.Pattern;

import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.hadoop.HadoopConfigurable;
import org.apache.iceberg.inmemory.InMemoryInputFile;
import org.apache.iceberg.io.BulkDeletionFailureException;
import org.apache.iceberg.io.DelegateFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.io.SupportsBulkOperations;
import org.apache.iceberg.io.SupportsPrefixOperations;
import org.apache.iceberg.io.SupportsStorageCredentials;
import org.apache.iceberg.shaded.com.github.benmanes.caffeine.cache.Cache;
import org.apache.iceberg.shaded.com.github.benmanes.caffeine.cache.Caffeine;
import org.apache.iceberg.shaded.com.github.benmanes.caffeine.cache.Weigher;
import org.apache.spark.SparkEnv;

/**
 * Files of tables, through another FileIO, whose small files stay in this process's memory.
 *
 * A file with a UUID in its name is never written again: what was read or written once is right for
 * ever. Janino compiles this class (`caching_io.py`): it knows no lambdas and no type parameters.
 */
public class CachingFileIO
        implements DelegateFileIO, HadoopConfigurable, SupportsStorageCredentials {

    static final Pattern UNIQUE =
            Pattern.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}[^/]*$");
    static final Pattern METADATA_NAME = Pattern.compile("(\\.json|/snap-[^/]*\\.avro|-m\\d+\\.avro)$");
    static final Pattern LOCAL = Pattern.compile("local(\\[[^,]*(,[^,]*)?\\])?");
    /** Bytes of the largest file of metadata, and of the largest file of rows, that is kept. */
    static final int METADATA = 8 << 20;
    static final int ROWS = 1 << 20;
    private static volatile Cache cache;

    private FileIO files;
    private transient Configuration conf;
    private transient List credentials;

    public void initialize(Map properties) {
        Map own = new HashMap(properties);
        String name = (String) own.remove("streamsql.io-impl");
        if (cache == null) {
            created(Long.parseLong((String) own.getOrDefault("streamsql.file-cache-bytes", "-1")));
        }
        own.put("io-impl", name);
        files = credentials == null
                ? CatalogUtil.loadFileIO(name, own, conf)
                : CatalogUtil.loadFileIO(name, own, conf, credentials);
    }

    private static synchronized void created(long bytes) {
        if (cache == null) {
            Weigher weigher = new Weigher() {
                public int weigh(Object location, Object content) {
                    return 200 + ((byte[]) content).length;
                }
            };
            long most = bytes >= 0 ? bytes : Runtime.getRuntime().maxMemory() / 16;
            cache = Caffeine.newBuilder().maximumWeight(most).weigher(weigher).build();
        }
    }

    /** Executors of a cluster do not have this class. */
    Object writeReplace() {
        String master = SparkEnv.get().conf().get("spark.master", "");
        return LOCAL.matcher(master).matches() ? (Object) this : files;
    }

    static byte[] kept(String location) {
        return cache == null ? null : (byte[]) cache.getIfPresent(location);
    }

    static void keep(String location, byte[] content) {
        if (cache != null && content.length <= most(location)) {
            cache.put(location, content);
        }
    }

    static int most(String location) {
        return METADATA_NAME.matcher(location).find() ? METADATA : ROWS;
    }

    static boolean unique(String location) {
        return UNIQUE.matcher(location).find();
    }

    public InputFile newInputFile(String location) {
        InputFile file = files.newInputFile(location);
        return unique(location) ? new Input(file, -1) : file;
    }

    public InputFile newInputFile(String location, long length) {
        InputFile file = files.newInputFile(location, length);
        return unique(location) ? new Input(file, length) : file;
    }

    public OutputFile newOutputFile(String location) {
        OutputFile file = files.newOutputFile(location);
        return unique(location) ? new Output(file) : file;
    }

    public void deleteFile(String location) {
        forget(location);
        files.deleteFile(location);
    }

    public void deleteFiles(Iterable locations) {
        for (Iterator it = locations.iterator(); it.hasNext();) {
            forget((String) it.next());
        }
        // With keys for each table, Iceberg 1.12 would sign a bulk request by the bucket alone, with
        // a key that is not the table's.
        if (files instanceof SupportsBulkOperations && credentials().isEmpty()) {
            ((SupportsBulkOperations) files).deleteFiles(locations);
            return;
        }
        int failed = 0;
        for (Iterator it = locations.iterator(); it.hasNext();) {
            try {
                files.deleteFile((String) it.next());
            } catch (RuntimeException error) {
                failed++;
            }
        }
        if (failed > 0) {
            throw new BulkDeletionFailureException(failed);
        }
    }

    public Iterable listPrefix(String prefix) {
        return ((SupportsPrefixOperations) files).listPrefix(prefix);
    }

    public void deletePrefix(String prefix) {
        ((SupportsPrefixOperations) files).deletePrefix(prefix);
        for (Iterator it = cache.asMap().keySet().iterator(); it.hasNext();) {
            if (((String) it.next()).startsWith(prefix)) {
                it.remove();
            }
        }
    }

    private static void forget(String location) {
        if (cache != null) {
            cache.invalidate(location);
        }
    }

    public Map properties() {
        return files.properties();
    }

    public void close() {
        files.close();
    }

    public void setConf(Configuration given) {
        conf = given;
    }

    public Configuration getConf() {
        return conf;
    }

    public void serializeConfWith(Function serializer) {
        if (files instanceof HadoopConfigurable) {
            ((HadoopConfigurable) files).serializeConfWith(serializer);
        }
    }

    public void setCredentials(List given) {
        credentials = given;
    }

    public List credentials() {
        return credentials == null ? Collections.EMPTY_LIST : credentials;
    }

    static class Input implements InputFile {
        private final InputFile file;
        private final long length;

        Input(InputFile file, long length) {
            this.file = file;
            this.length = length;
        }

        /** The file's content, if it is kept or is to be; null: the file is to be read in parts. */
        private byte[] content() {
            String location = file.location();
            byte[] known = kept(location);
            if (known != null || length > most(location)) {
                return known;
            }
            if (length < 0 && most(location) == ROWS) {
                return null;
            }
            try {
                InputStream stream = file.newStream();
                try {
                    known = stream.readAllBytes();
                } finally {
                    stream.close();
                }
            } catch (IOException error) {
                throw new org.apache.iceberg.exceptions.RuntimeIOException(error);
            }
            keep(location, known);
            return known;
        }

        public long getLength() {
            if (length >= 0) {
                return length;
            }
            byte[] known = content();
            return known == null ? file.getLength() : known.length;
        }

        public SeekableInputStream newStream() {
            byte[] known = content();
            return known == null ? file.newStream() : new InMemoryInputFile(known).newStream();
        }

        public String location() {
            return file.location();
        }

        public boolean exists() {
            return kept(file.location()) != null || file.exists();
        }
    }

    static class Output implements OutputFile {
        private final OutputFile file;

        Output(OutputFile file) {
            this.file = file;
        }

        /** Its name is its own, so nothing can be there yet: to look would be a request. */
        public PositionOutputStream create() {
            return createOrOverwrite();
        }

        public PositionOutputStream createOrOverwrite() {
            return new Written(file.createOrOverwrite(), file.location());
        }

        public String location() {
            return file.location();
        }

        public InputFile toInputFile() {
            return new Input(file.toInputFile(), -1);
        }
    }

    static class Written extends PositionOutputStream {
        private final PositionOutputStream stream;
        private final String location;
        private ByteArrayOutputStream copy = new ByteArrayOutputStream();

        Written(PositionOutputStream stream, String location) {
            this.stream = stream;
            this.location = location;
        }

        public long getPos() throws IOException {
            return stream.getPos();
        }

        public long storedLength() throws IOException {
            return stream.storedLength();
        }

        public void write(int value) throws IOException {
            stream.write(value);
            if (copy != null) {
                copy.write(value);
                shorten();
            }
        }

        public void write(byte[] values, int start, int count) throws IOException {
            stream.write(values, start, count);
            if (copy != null) {
                copy.write(values, start, count);
                shorten();
            }
        }

        private void shorten() {
            if (copy.size() > most(location)) {
                copy = null;
            }
        }

        public void flush() throws IOException {
            stream.flush();
        }

        public void close() throws IOException {
            stream.close();
            if (copy != null) {
                keep(location, copy.toByteArray());
                copy = null;
            }
        }
    }
}
