import java.io.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

/** What Java programs live on: threads, garbage, sub-processes, and errors that the virtual
 *  machine learns of by SIGSEGV. Prints the same wherever it runs. */
public class Work {
    static int depth;
    static int deeper() { depth++; return deeper() + 1; }

    static int length(String s) { return s.length(); }

    public static void main(String[] arguments) throws Exception {
        // Threads.
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Long>> sums = new ArrayList<>();
        for (int i = 0; i < 48; i++) {
            final int n = i;
            sums.add(pool.submit(() -> LongStream.range(0, 200_000).map(x -> x * n % 7).sum()));
        }
        long sum = 0;
        for (Future<Long> future : sums) sum += future.get();
        pool.shutdown();
        System.out.println("threads " + sum);
        System.out.println("stream " + IntStream.range(0, 300_000).parallel().filter(x -> x % 3 == 0).count());

        // Garbage: a few hundred megabytes through a small heap.
        Map<Integer, byte[]> kept = new HashMap<>();
        for (int i = 0; i < 40_000; i++) kept.put(i % 200, new byte[10_000 + i % 7]);
        System.gc();
        System.out.println("garbage " + kept.values().stream().mapToInt(b -> b.length).sum());

        // Null checks and stack overflow come as SIGSEGV to the virtual machine.
        int nulls = 0;
        for (int i = 0; i < 60_000; i++) {
            try { length(i % 3 == 0 ? null : "x"); } catch (NullPointerException e) { nulls++; }
        }
        System.out.println("null " + nulls);
        for (int i = 0; i < 3; i++) {
            depth = 0;
            try { deeper(); } catch (StackOverflowError e) { System.out.println("overflow " + (depth > 1000)); }
        }
        Thread big = new Thread(null, () -> {
            depth = 0;
            try { deeper(); } catch (StackOverflowError e) { System.out.println("in a thread " + (depth > 1000)); }
        }, "big", 64 << 20);
        big.start();
        big.join();

        // Sub-processes.
        for (String line : List.of("echo one; exit 0", "echo two; exit 7", "kill -9 $$")) {
            Process process = new ProcessBuilder("sh", "-c", line).start();
            String out = new String(process.getInputStream().readAllBytes()).trim();
            System.out.println("process '" + out + "' " + process.waitFor());
        }
        List<Process> many = new ArrayList<>();
        for (int i = 0; i < 8; i++) many.add(new ProcessBuilder("cat").start());
        for (Process process : many) {
            try (Writer writer = new OutputStreamWriter(process.getOutputStream())) { writer.write("hello"); }
            if (!new String(process.getInputStream().readAllBytes()).equals("hello")) throw new Error("cat");
            process.waitFor();
        }

        // Files and maps of files.
        Path file = Files.createTempFile("work", ".txt");
        Files.writeString(file, "line\n".repeat(10_000));
        try (var channel = java.nio.channels.FileChannel.open(file)) {
            var map = channel.map(java.nio.channels.FileChannel.MapMode.READ_ONLY, 0, channel.size());
            System.out.println("map " + map.remaining() + " " + (char) map.get(1));
        }
        Files.delete(file);
        System.out.println("the end");
    }
}
