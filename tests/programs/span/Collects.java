/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Two threads that make garbage; prints how much of it they counted. */
public class Collects {
	static volatile Object keep;

	public static void main(String[] arguments) throws Exception {
		Thread[] threads = new Thread[2];
		long[] sums = new long[2];
		for (int at = 0; at < 2; at++) {
			int me = at;
			threads[at] = new Thread(() -> {
				for (int i = 0; i < 300; i++) {
					byte[] garbage = new byte[100000];
					garbage[i] = 1;
					keep = garbage;
					sums[me] += garbage[i];
				}
			});
			threads[at].start();
		}
		for (Thread thread : threads)
			thread.join();
		System.gc();
		System.out.println(sums[0] + sums[1]);
	}
}
