// Reads a range of a table with HBase's own client, and prints rows, cells and a CRC-32 of all their bytes in order.
//
// java -cp JARS RowDigest.java HOST:PORT TABLE [START [END]]

import java.nio.ByteBuffer;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

public class RowDigest {
    public static void main(String[] args) throws Exception {
        Configuration conf = HBaseConfiguration.create();
        conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
        conf.set("hbase.client.bootstrap.servers", args[0]);
        Scan scan = new Scan().readVersions(2);
        if (args.length > 2) {
            scan.withStartRow(Bytes.toBytes(args[2]));
        }
        if (args.length > 3) {
            scan.withStopRow(Bytes.toBytes(args[3]));
        }
        long rows = 0;
        long cells = 0;
        CRC32 crc = new CRC32();
        try (Connection connection = ConnectionFactory.createConnection(conf);
                Table table = connection.getTable(TableName.valueOf(args[1]));
                ResultScanner scanner = table.getScanner(scan)) {
            for (Result row : scanner) {
                rows++;
                for (Cell cell : row.rawCells()) {
                    cells++;
                    crc.update(CellUtil.cloneRow(cell));
                    crc.update(CellUtil.cloneFamily(cell));
                    crc.update(CellUtil.cloneQualifier(cell));
                    crc.update(ByteBuffer.allocate(8).putLong(0, cell.getTimestamp()).array());
                    crc.update(CellUtil.cloneValue(cell));
                }
            }
        }
        System.out.println(rows + " rows, " + cells + " cells, " + Long.toHexString(crc.getValue()));
    }
}
