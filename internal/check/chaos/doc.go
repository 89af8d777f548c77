// Package chaos runs real "isotone serve" processes on the loopback interface, injects
// faults, and checks what clients receive meanwhile.
//
// It owns the processes ([Process], [Node], [Cluster]), a load that follows the leader and
// checks every answer ([Load]), and the faults. It reaches nodes as any client does, and
// processes by signals, files and /proc. It must not import what it tests; only the error
// vocabulary and the checker are shared. Only tests use it. Its own tests are those of the harness
// and of storms. The acceptance tests of the product are in packages by subject, which share
// package trial: membership, failover, service, operation and upgrade.
//
// A test that passes here shows that this binary, on this kernel, with real sockets, signals
// and fsyncs, kept its promises. What needs thousands of schedules or exact control of time
// belongs to the simulator.
//
// # What every test checks
//
// The cleanup of a [Cluster] ends every process that it ever started. The test fails if one of
// them had ended by itself, or had not ended cleanly after SIGTERM or SIGINT. If the test
// failed, the ends of the logs are printed.
//
// If the test process itself dies, the kernel kills its nodes. Mounts, loop devices,
// namespaces and the rules in them go with them; only files in the temporary directory are
// left. For that, and for signals that stop a process and /proc, the package needs Linux.
//
// # Storms
//
// [Unleash] injects random faults into a cluster: signals, failures of fsync, disks and
// clocks, and of the connections between nodes, by a [Proxy] for each pair or by iptables in
// network namespaces (see [Host]). Every few seconds it ends all faults and checks that the
// cluster recovers. TestChaos runs storms for seconds, "make chaos" for half an hour.
//
// # Steps
//
// [Cluster.StopAt] has a node stop itself at a named step of what it does, where a test can kill
// it or another process. TestMemberSteps of package membership kills at one step of each command that changes members
// or the leadership, "make member-steps" at all of them.
//
// # Failovers
//
// A [Watch] asks every node all the time, and measures how long nothing is answered when a leader
// ends. [Scenarios] lists in which ways it does. TestFailover of package failover is a short run, "make failover"
// writes a report; see docs/failover.md.
//
// # Hostile clients
//
// [RunHostile] starts connections that do what clients should not, in a process of the
// lowest priority and at a bounded rate; [HostileKinds] lists what. TestHostile of package service has a client with
// credentials ask beside them, "make hostile-storm" measures what remains of its rate.
//
// # Faults within processes
//
// The program under test is built with the tag faults, which is its only difference to a release. It has three
// hidden settings more: ISOTONE_FAULT_CLOCK is a file that sets the clock of a node wrong (package faults), ISOTONE_FAULT_STEP
// one that names the step at which a node stops (package stops), and ISOTONE_FAULT_STOP the step after which
// backup, restore or recover is killed.
//
// # Versions
//
// There is one version yet. [Node.ChangeVersion] has a node run as one to come, which knows one feature
// level more. Package upgrade rolls a loaded cluster to that and back, and changes versions at random in
// a storm; "make upgrade-storm" does that for minutes. The first release adds its own commit, which
// these tests then build from the history of the repository.
package chaos
