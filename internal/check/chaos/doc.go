// Package chaos runs real "isotone serve" processes on the loopback interface, injects
// faults, and checks what clients saw meanwhile.
//
// It owns the processes ([Process], [Node], [Cluster]), a load that follows the
// leader and checks every answer ([Load]), the faults, and nothing of the product:
// it talks to nodes as any client does, and to processes by signals, files and
// /proc. It must not import what it tests; only the vocabulary and the checker are
// shared.
// Only tests use it. The acceptance tests of the product are its own tests.
//
// A test that passes here says: this binary, on this kernel, with real sockets,
// signals and fsyncs, kept its promise. What needs thousands of schedules or
// exact control of time belongs to the simulator.
//
// # What every test checks
//
// When a [Cluster] is cleaned up, every process it ever started is ended, and
// the test fails if one of them had ended without being asked, or had not ended
// cleanly after SIGTERM or SIGINT. If the test failed, the logs are printed.
//
// Should the test process itself die, the kernel ends its nodes. With them go mounts,
// loop devices, namespaces and the rules in them: nothing is left but files in the
// directory for temporary ones. That, signals that stop a process, and /proc make
// this a package for Linux.
//
// # Storms
//
// [Unleash] breaks a cluster at random: signals, fsyncs, disks, clocks, and what lies
// between nodes, which is a [Proxy] for each pair, or a network of namespaces (see
// [Host]) with iptables. Every few seconds all is healed, and the cluster has to be
// whole. TestChaos does that for seconds, "make chaos" for half an hour.
//
// # Versions
//
// [BuildPrevious] builds the release before this version from the history of the
// repository. TestUpgrade rolls a loaded cluster from it to this version and back, and
// lets a storm change versions at random; "make upgrade-storm" does that for minutes.
package chaos
