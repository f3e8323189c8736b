% Objects between two tasks in S-Lang, by Debian's module for PVM.
require ("pvm");

private define child (parent)
{
   variable object, numbers;
   () = pvm_recv (parent, 1);
   object = pvm_recv_obj ();
   pvm_send_obj (parent, 2, object.numbers * 2);
   pvm_send_obj (parent, 3, struct { name = strup (object.name), list = ["one", "two"] });
   () = pvm_recv (parent, 4);
   numbers = pvm_unpack (Double_Type, 3);
   pvm_psend (parent, 5, sum (numbers));
   pvm_exit ();
   exit (0);
}

private define first (script)
{
   variable tid, numbers, object, hosts;
   tid = pvm_spawn (["slsh", script, "child"], PvmTaskDefault, "", 1);
   !if (typeof (tid) == Int_Type) tid = tid[0];
   pvm_send_obj (tid, 1, struct { name = "pvm", numbers = [1:5] });
   () = pvm_recv (tid, 2);
   numbers = pvm_recv_obj ();
   vmessage ("%S of %d", sum (numbers), length (numbers));
   () = pvm_recv (tid, 3);
   object = pvm_recv_obj ();
   vmessage ("%s %s", object.name, object.list[1]);
   pvm_psend (tid, 4, [1.5, 2.5, 3.5]);
   () = pvm_recv (tid, 5);
   vmessage ("%S", pvm_unpack (Double_Type, 1)[0]);
   hosts = pvm_config ();
   vmessage ("%s", hosts.hi_arch[0]);
   pvm_joingroup ("objects");
   vmessage ("of %d", pvm_gsize ("objects"));
   pvm_barrier ("objects", 1);
   pvm_lvgroup ("objects");
   pvm_exit ();
   exit (0);
}

if (__argc > 1)
  child (pvm_parent ());
else
  first (__argv[0]);
