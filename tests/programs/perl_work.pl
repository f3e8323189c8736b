# What Perl programs live on: forks, pipes, eval, signals, threads. Prints the same wherever
# it runs.
use strict;
use warnings;
use POSIX qw(:sys_wait_h);
$| = 1;

# Forks, each with its own pipe.
my @readers;
for my $n (1 .. 6) {
    my $pid = open(my $reader, '-|') // die "fork: $!";
    if ($pid == 0) {
        my $sum = 0;
        $sum += $_ * $n for 1 .. 10000;
        print "child $n: $sum\n";
        exit $n;
    }
    push @readers, $reader;
}
for my $reader (@readers) {
    print while <$reader>;
    close $reader;
    print "status ", $? >> 8, "\n";
}

# Pipes to and from programs; a shell.
open(my $sort, '|-', 'sort', '-n') or die;
print $sort "$_\n" for reverse 1 .. 5;
close $sort;
print "back-quotes: ", `echo hello | tr a-z A-Z`;
print "system: ", system('exit 3;') >> 8, "\n";

# Exceptions, closures, regular expressions.
my $caught = 0;
for my $n (1 .. 1000) {
    eval { die { n => $n } if $n % 2; 1 } or $caught += $@->{n};
}
print "caught $caught\n";
my %words;
$words{$_}++ for ('the quick brown fox jumps over the lazy dog ' x 500) =~ /(\w+)/g;
print join(' ', map { "$_=$words{$_}" } sort keys %words), "\n";
my $code = join ';', map { "sub f$_ { return \$_[0] + $_ }" } 1 .. 500;
eval $code;
print "eval ", f500(1), "\n";

# Signals.
my $alarms = 0;
{
    local $SIG{ALRM} = sub { $alarms++; die "alarm\n" };
    eval { alarm 1; select undef, undef, undef, 20; };
    print "alarm $alarms $@";
}
my $pid = fork;
if (!$pid) { sleep 60; exit }
kill KILL => $pid;
waitpid $pid, 0;
print "killed ", $? & 127, "\n";

# Big strings: malloc's mmap and mremap.
my $big = 'x' x (1 << 20);
$big .= $big for 1 .. 5;
print length $big, "\n";

if (eval { require threads; 1 }) {
    my @threads = map { my $n = $_; threads->create(sub { my $s = 0; $s += $_ for 1 .. 10000; $s * $n }) } 1 .. 4;
    my $sum = 0;
    $sum += $_->join for @threads;
    print "threads $sum\n";
}
print "the end\n";
