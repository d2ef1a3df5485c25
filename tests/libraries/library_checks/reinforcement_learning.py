"""Checks of libraries for reinforcement learning."""
from library_checks.registry import check, place


@check("stable-baselines3", "gymnasium", "farama_notifications", "cloudpickle", "pandas", "matplotlib")
def stable_baselines3():
    """PPO, A2C and DQN learn a little on CartPole, are saved and loaded"""
    import tempfile
    from stable_baselines3 import A2C, DQN, PPO
    for kind, options in ((PPO, {"n_steps": 32, "batch_size": 16, "n_epochs": 1}), (A2C, {"n_steps": 8}),
                          (DQN, {"learning_starts": 16, "buffer_size": 64, "batch_size": 8})):
        model = kind("MlpPolicy", "CartPole-v1", seed=0, device=place(), policy_kwargs={"net_arch": [8]}, **options)
        model.learn(64)
        with tempfile.TemporaryDirectory() as d:
            model.save(d + "/model")
            again = kind.load(d + "/model", device=place())
        seen, policy = model.get_env().reset(), model.policy
        assert all(p.isfinite().all() for p in policy.parameters())
        assert (again.predict(seen, deterministic=True)[0] == model.predict(seen, deterministic=True)[0]).all()
